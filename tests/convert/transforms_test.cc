#include <gtest/gtest.h>

#include "model/config.h"
#include "model/tensors.h"
#include "tests/convert/convert_case.h"
#include "tests/convert/expected.h"
#include "tests/golden/golden.h"

namespace strata::test {
namespace {

void expect_tensors(const gguf::File& file, const HfCheckpoint& checkpoint) {
    auto expected = expected_tensors(checkpoint);
    for (const gguf::Tensor& tensor : file.tensors()) {
        ASSERT_TRUE(expected.contains(tensor.name)) << tensor.name;
        EXPECT_EQ(values_of(tensor), expected[tensor.name]) << tensor.name;
        expected.erase(tensor.name);
    }
    EXPECT_TRUE(expected.empty()) << expected.begin()->first << " is not in the file";
}

TEST(Convert, every_tensor_of_the_golden_checkpoints_is_what_the_formulas_say) {
    for (const char* name : {"tiny", "odd"}) {
        const ConvertCase out;
        convert::ConvertOptions options = out.options();
        options.directory = golden_directory(name) + "/target";
        const gguf::File file = out.file(options);
        expect_tensors(file, HfCheckpoint::load(options.directory));
    }
}

TEST(Convert, every_tensor_of_a_model_of_unequal_sizes_is_what_the_formulas_say) {
    const HfCheckpoint checkpoint = HfCheckpoint::random(small_config());
    const ConvertCase made(checkpoint);
    const gguf::File file = made.file();
    expect_tensors(file, checkpoint);
    const auto config = model::config_from_gguf(file);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(model::missing_tensors(*config, file), std::vector<std::string>{});
}

TEST(Convert, a_checkpoint_of_an_mtp_layer_alone_gives_the_layers_tensors) {
    HfCheckpoint checkpoint = HfCheckpoint::random(small_config());
    std::map<std::string, std::vector<float>> wanted = expected_tensors(checkpoint);
    std::erase_if(wanted, [](const auto& entry) { return !entry.first.starts_with("blk.4."); });
    std::erase_if(checkpoint.tensors,
                  [](const auto& entry) { return !entry.first.starts_with("mtp."); });
    checkpoint.config.erase("mtp_num_hidden_layers");
    const ConvertCase made(checkpoint);
    const gguf::File file = made.file();
    ASSERT_EQ(file.tensors().size(), wanted.size());
    for (const gguf::Tensor& tensor : file.tensors()) {
        EXPECT_EQ(values_of(tensor), wanted.at(tensor.name)) << tensor.name;
    }
    // The model that it is of says how many tokens there are.
    const auto read = model::config_from_gguf(file, 37);
    ASSERT_TRUE(read.ok()) << read.error().message;
    const model::Config& config = *read;
    EXPECT_EQ(config.mtp_layers, 1);
    EXPECT_EQ(model::missing_mtp_tensors(config, file), std::vector<std::string>{});
}

TEST(Convert, the_configuration_reads_back_as_it_was) {
    const gguf::File file = ConvertCase(HfCheckpoint::random(small_config())).file();
    const auto read = model::config_from_gguf(file);
    ASSERT_TRUE(read.ok()) << read.error().message;
    const model::Config& c = *read;
    EXPECT_EQ(c.layers, 4);
    EXPECT_EQ(c.mtp_layers, 1);
    EXPECT_EQ(c.hidden, 24);
    EXPECT_EQ(c.vocabulary, 37);
    EXPECT_EQ(c.context, 77);
    EXPECT_EQ(c.epsilon, 1e-6F);
    EXPECT_EQ(c.streams, 3);
    EXPECT_EQ(c.stream_rank, 7);
    using enum model::LayerKind;
    EXPECT_EQ(c.kinds, (std::vector{delta_net, sparse_attention, delta_net, sparse_attention}));
    EXPECT_EQ(c.delta_key_heads, 3);
    EXPECT_EQ(c.delta_value_heads, 15);
    EXPECT_EQ(c.delta_head_dim, 2);
    EXPECT_EQ(c.delta_kernel, 4);
    EXPECT_EQ(c.heads, 6);
    EXPECT_EQ(c.kv_heads, 2);
    EXPECT_EQ(c.head_dim, 16);
    EXPECT_EQ(c.rotary_dim, 4);
    EXPECT_EQ(c.rope_base, 10000);
    EXPECT_EQ(c.rope_sections, (std::vector{1, 1, 0, 0}));
    EXPECT_EQ(c.index_heads, 3);
    EXPECT_EQ(c.index_dim, 8);
    EXPECT_EQ(c.index_budget, 20);
    EXPECT_EQ(c.index_ratio, 5);
    EXPECT_EQ(c.experts, 4);
    EXPECT_EQ(c.experts_active, 2);
    EXPECT_EQ(c.expert_hidden, 9);
    EXPECT_EQ(c.shared_hidden, 11);
    EXPECT_TRUE(c.renormalize_experts);
    EXPECT_EQ(c.ngram.layer, 2);
    EXPECT_EQ(c.ngram.size, 3);
    EXPECT_EQ(c.ngram.heads_per_ngram, 4);
    EXPECT_EQ(c.ngram.kernel, 3);
    EXPECT_EQ(c.ngram.end_token, 5);
    EXPECT_EQ(c.ngram.row_width, 5);
    EXPECT_EQ(c.ngram.multipliers, (std::vector<std::uint64_t>{1000001, 2000002, 3000003}));
    EXPECT_EQ(c.ngram.vocabulary, (std::vector<std::uint64_t>{11, 12, 13, 14, 15, 16, 17, 18}));
    EXPECT_EQ(c.ngram.offsets, (std::vector<std::uint64_t>{0, 11, 23, 36, 50, 65, 81, 98}));
}

TEST(Convert, both_public_layouts_give_the_same_file) {
    const HfCheckpoint checkpoint = HfCheckpoint::random(small_config());
    const std::string bytes = ConvertCase(checkpoint).bytes();
    const HfCheckpoint other = checkpoint.other_layout();
    ASSERT_TRUE(other.tensors.contains("model.language_model.layers.0.mlp.experts.gate_up_proj"));
    ASSERT_TRUE(other.tensors.contains("mtp.layers.0.mlp.experts.down_proj"));
    EXPECT_TRUE(ConvertCase(other).bytes() == bytes);
    EXPECT_TRUE(ConvertCase(other, 3).bytes() == bytes);
    HfCheckpoint bare = checkpoint;
    bare.rename_prefix("model.", "");
    EXPECT_TRUE(ConvertCase(bare, 2).bytes() == bytes);
}

TEST(Convert, values_of_any_float_type_are_read) {
    HfCheckpoint checkpoint = HfCheckpoint::random(small_config());
    const std::string bytes = ConvertCase(checkpoint).bytes();
    for (auto& [name, tensor] : checkpoint.tensors) {
        if (tensor.dtype == "BF16") tensor = f32_tensor(tensor.shape, tensor.floats());
    }
    EXPECT_TRUE(ConvertCase(checkpoint).bytes() == bytes);
}

TEST(Convert, a_model_without_ngrams_and_without_mtp_converts) {
    auto config = small_config();
    config["mtp_num_hidden_layers"] = 0;
    HfCheckpoint checkpoint = HfCheckpoint::random(config);
    std::erase_if(checkpoint.tensors,
                  [](const auto& entry) { return entry.first.find(".ple.") != std::string::npos; });
    checkpoint.config["ple_layer_ids"] = nlohmann::ordered_json::array();
    const gguf::File file = ConvertCase(checkpoint).file();
    const auto read = model::config_from_gguf(file);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_FALSE(read->ngram.present());
    EXPECT_EQ(read->mtp_layers, 0);
    EXPECT_EQ(model::missing_tensors(*read, file), std::vector<std::string>{});
}

TEST(Convert, a_tied_head_is_left_to_the_embedding) {
    HfCheckpoint checkpoint = HfCheckpoint::random(small_config());
    checkpoint.config["tie_word_embeddings"] = true;
    EXPECT_EQ(ConvertCase(checkpoint).file().find_tensor("output.weight"), nullptr);
    checkpoint.tensors.erase("lm_head.weight");
    EXPECT_EQ(ConvertCase(checkpoint).file().find_tensor("output.weight"), nullptr);
}

TEST(Convert, the_mtp_layer_can_be_left_out) {
    const ConvertCase made(HfCheckpoint::random(small_config()));
    convert::ConvertOptions options = made.options();
    options.mtp = false;
    const gguf::File file = made.file(options);
    EXPECT_EQ(file.find("qwen4exp.nextn_predict_layers"), nullptr);
    EXPECT_EQ(file.find("qwen4exp.block_count")->as_uint(), 4U);
    EXPECT_EQ(file.find_tensor("blk.4.attn_q.weight"), nullptr);
    EXPECT_NE(file.find_tensor("blk.3.attn_q.weight"), nullptr);
}

TEST(Convert, an_mtp_layer_that_the_configuration_does_not_mention_is_taken_from_the_tensors) {
    HfCheckpoint checkpoint = HfCheckpoint::random(small_config());
    const std::string bytes = ConvertCase(checkpoint).bytes();
    checkpoint.config.erase("mtp_num_hidden_layers");
    EXPECT_TRUE(ConvertCase(checkpoint).bytes() == bytes);
    checkpoint.config["mtp"] = {{"num_hidden_layers", 0}};
    EXPECT_EQ(ConvertCase(checkpoint).file().find_tensor("blk.4.attn_q.weight"), nullptr);
}

}  // namespace
}  // namespace strata::test
