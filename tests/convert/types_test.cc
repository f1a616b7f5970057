#include <gtest/gtest.h>

#include <set>

#include "convert/type_choice.h"
#include "tests/convert/convert_case.h"

namespace strata::test {
namespace {

using quant::Type;

convert::ConvertOptions typed(const ConvertCase& made, Type type) {
    convert::ConvertOptions options = made.options();
    options.types.type = type;
    return options;
}

Type type_of(const gguf::File& file, const char* name) {
    const gguf::Tensor* tensor = file.find_tensor(name);
    EXPECT_NE(tensor, nullptr) << name;
    return tensor == nullptr ? Type::i64 : tensor->type;
}

TEST(ConvertTypes, vectors_convolutions_and_routers_stay_in_f32) {
    const ConvertCase out(HfCheckpoint::random(block_config()));
    const gguf::File file = out.file(typed(out, Type::q8_0));
    for (const char* name :
         {"blk.0.hc_attn_norm.weight", "blk.0.ssm_conv1d.weight", "blk.0.ssm_a",
          "blk.0.ssm_dt.bias", "blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_inp_shexp.weight",
          "blk.2.ple_conv1d.weight", "blk.3.attn_q_norm.weight", "blk.4.nextn.hnorm.weight"}) {
        EXPECT_EQ(type_of(file, name), Type::f32) << name;
    }
}

TEST(ConvertTypes, a_block_format_spares_the_small_sensitive_matrices) {
    const ConvertCase out(HfCheckpoint::random(block_config()));
    convert::ConvertOptions options = typed(out, Type::q8_0);
    const char* sensitive[] = {"blk.0.ssm_alpha.weight", "blk.0.ssm_beta.weight",
                               "blk.3.indexer.q_proj.weight", "blk.4.indexer.k_proj.weight"};
    const gguf::File file = out.file(options);
    for (const char* name : sensitive) EXPECT_EQ(type_of(file, name), Type::bf16) << name;
    EXPECT_EQ(type_of(file, "blk.0.hc_ffn_up.weight"), Type::bf16);
    EXPECT_EQ(type_of(file, "output_hc_down.weight"), Type::bf16);
    EXPECT_EQ(type_of(file, "blk.0.attn_qkv.weight"), Type::q8_0);
    EXPECT_EQ(type_of(file, "per_layer_token_embd.weight"), Type::q8_0);
    options.types.hyper = Type::q8_0;
    EXPECT_EQ(type_of(out.file(options), "blk.0.hc_ffn_up.weight"), Type::q8_0);
    options = typed(out, Type::f16);
    const gguf::File half = out.file(options);
    for (const char* name : sensitive) EXPECT_EQ(type_of(half, name), Type::f16) << name;
}

TEST(ConvertTypes, each_class_takes_the_type_that_was_asked_for_it) {
    const ConvertCase out(HfCheckpoint::random(block_config()));
    convert::ConvertOptions options = typed(out, Type::q8_0);
    options.types.experts_gate = Type::q4_0;
    options.types.experts_down = Type::f16;
    options.types.dense = Type::bf16;
    options.types.embedding = Type::f16;
    options.types.head = Type::f32;
    options.types.table = Type::q4_0;
    const gguf::File file = out.file(options);
    EXPECT_EQ(type_of(file, "blk.0.ffn_gate_exps.weight"), Type::q4_0);
    EXPECT_EQ(type_of(file, "blk.4.ffn_up_exps.weight"), Type::q4_0);
    EXPECT_EQ(type_of(file, "blk.0.ffn_down_exps.weight"), Type::f16);
    EXPECT_EQ(type_of(file, "blk.0.ffn_down_shexp.weight"), Type::bf16);
    EXPECT_EQ(type_of(file, "blk.3.attn_q.weight"), Type::bf16);
    EXPECT_EQ(type_of(file, "blk.2.ple_key.weight"), Type::bf16);
    EXPECT_EQ(type_of(file, "blk.4.nextn.eh_proj.weight"), Type::bf16);
    EXPECT_EQ(type_of(file, "token_embd.weight"), Type::f16);
    EXPECT_EQ(type_of(file, "output.weight"), Type::f32);
    EXPECT_EQ(type_of(file, "per_layer_token_embd.weight"), Type::q4_0);
    EXPECT_EQ(file.find("general.file_type")->as_uint(), 7U);
}

TEST(ConvertTypes, values_in_every_type_are_the_f32_ones_encoded) {
    const ConvertCase made(HfCheckpoint::random(block_config()));
    std::vector<std::vector<float>> want;
    const gguf::File exact = made.file();
    for (const gguf::Tensor& tensor : exact.tensors()) want.push_back(values_of(tensor));
    for (const Type type : {Type::f16, Type::bf16, Type::q8_0, Type::q4_0}) {
        convert::ConvertOptions options = made.options();
        options.types.type = type;
        options.types.hyper = type;
        const gguf::File coarse = made.file(options);
        ASSERT_EQ(coarse.tensors().size(), want.size());
        for (std::size_t i = 0; i < want.size(); ++i) {
            const gguf::Tensor& tensor = coarse.tensors()[i];
            std::vector<std::byte> bytes(tensor.data.size());
            quant::info(tensor.type)
                .encode(want[i].data(), bytes.data(), static_cast<std::int64_t>(want[i].size()));
            EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), tensor.data.begin())) << tensor.name;
        }
    }
}

TEST(ConvertTypes, a_width_that_the_block_does_not_divide_is_refused_by_name) {
    auto config = block_config();
    config["hc_lowrank"] = 20;
    config["ple_embed_dim"] = 128;
    const ConvertCase made(HfCheckpoint::random(config));
    convert::ConvertOptions options = typed(made, Type::q8_0);
    const std::string sentence = made.error(options);
    EXPECT_TRUE(says(sentence, "'per_layer_token_embd.weight' has rows of 16 values"));
    EXPECT_TRUE(says(sentence, "Q8_0 wants a multiple of 32"));
    options.types.table = Type::f16;
    options.types.hyper = Type::q4_0;
    EXPECT_TRUE(says(made.error(options), "'output_hc_up.weight' has rows of 20 values"));
    options.types.hyper.reset();
    EXPECT_EQ(type_of(made.file(options), "blk.0.attn_qkv.weight"), Type::q8_0);
}

TEST(ConvertTypes, names_of_types_are_read_in_any_case_and_others_refused) {
    EXPECT_EQ(convert::parse_type("q8_0").value(), Type::q8_0);
    EXPECT_EQ(convert::parse_type("BF16").value(), Type::bf16);
    EXPECT_TRUE(says(convert::parse_type("q9").error().message, "'q9'"));
    EXPECT_TRUE(says(convert::parse_type("i64").error().message, "'i64'"));
    EXPECT_TRUE(says(convert::parse_type("i64").error().message, "q8_0"));
    EXPECT_FALSE(convert::parse_type("").ok());
}

TEST(ConvertTypes, a_value_that_the_type_cannot_hold_is_refused) {
    HfCheckpoint checkpoint = HfCheckpoint::random(small_config());
    HfTensor& tensor = checkpoint.tensors["model.layers.1.self_attn.k_proj.weight"];
    std::vector<float> values = tensor.floats();
    values[30] = 70000;
    tensor = f32_tensor(tensor.shape, values);
    const ConvertCase made(checkpoint);
    convert::ConvertOptions options = made.options();
    options.types.type = Type::f16;
    EXPECT_TRUE(says(made.error(options), "'blk.1.attn_k.weight' has the value 70000"));
    made.file();
}

TEST(ConvertTypes, progress_counts_every_byte_of_tensor_data) {
    const ConvertCase made(HfCheckpoint::random(small_config()));
    convert::ConvertOptions options = made.options();
    std::uint64_t last = 0;
    std::uint64_t whole = 0;
    std::set<std::string> names;
    options.progress = [&](std::uint64_t done, std::uint64_t total, std::string_view tensor) {
        EXPECT_GT(done, last);
        last = done;
        whole = total;
        names.insert(std::string(tensor));
        return true;
    };
    const gguf::File file = made.file(options);
    std::uint64_t bytes = 0;
    for (const gguf::Tensor& tensor : file.tensors()) bytes += tensor.data.size();
    EXPECT_EQ(last, bytes);
    EXPECT_EQ(whole, bytes);
    EXPECT_EQ(names.size(), file.tensors().size());
}

TEST(ConvertTypes, a_caller_can_end_a_conversion_and_no_file_stays) {
    const ConvertCase made(HfCheckpoint::random(small_config()));
    convert::ConvertOptions options = made.options();
    options.progress = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
    EXPECT_TRUE(says(made.error(options), "interrupted"));
}

}  // namespace
}  // namespace strata::test
