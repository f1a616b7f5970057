// What a draft file must hold, and what is said of one that does not.
#include <gtest/gtest.h>

#include "spec/dflash/tensors.h"
#include "tests/spec/draft_case.h"

namespace strata::test {
namespace {

using gguf::Value;
using Change = std::function<void(DraftFile&)>;

GoldenDraft& odd() { return GoldenDraft::of("odd"); }

void expect_refused(const Change& change, const std::string& part) {
    const auto drafter = odd().changed(change);
    ASSERT_FALSE(drafter.ok()) << part;
    EXPECT_NE(drafter.error().message.find(part), std::string::npos) << drafter.error().message;
}

Value number(std::uint32_t value) { return Value::of(value); }

TEST(DflashContract, the_configuration_is_what_the_file_says) {
    const dflash::Config config = odd().drafter()->config();
    EXPECT_EQ(config.layers, 2);
    EXPECT_EQ(config.hidden, 96);
    EXPECT_EQ(config.vocabulary, 900);
    EXPECT_EQ(config.head_dim, 32);
    EXPECT_EQ(config.rotary_dim, 32);
    EXPECT_EQ(config.rope_base, 1e7);
    EXPECT_EQ(config.window, 40);
    EXPECT_EQ(config.block_size, 7);
    EXPECT_EQ(config.mask_token, 890);
    EXPECT_EQ(config.target_layers, (std::vector<std::int64_t>{1, 3, 4, 6}));
    EXPECT_EQ(config.conv_group, 24);
    EXPECT_EQ(config.selector_rank, 12);
    EXPECT_EQ(config.candidates, 5);
    EXPECT_EQ(dflash::tensor_list(config).size(), 15U * 2 + 6);
}

// SPEC-13: the selector's too, without which it would be a draft of another kind.
TEST(DflashContract, any_tensor_that_is_missing_is_named) {
    for (const dflash::TensorSpec& spec : dflash::tensor_list(odd().drafter()->config())) {
        expect_refused(
            [&](DraftFile& file) {
                std::erase_if(file.tensors, [&](const auto& t) { return t.name == spec.name; });
            },
            spec.name == "selector_predecessor.weight"
                ? "tensor 'selector_predecessor.weight' is missing"
                : "tensor '" + spec.name + "' is missing, wanted shape [");
    }
}

TEST(DflashContract, any_tensor_of_another_shape_is_named_with_both_shapes) {
    for (const dflash::TensorSpec& spec : dflash::tensor_list(odd().drafter()->config())) {
        if (spec.name == "selector_predecessor.weight") continue;  // it says how many tokens
        expect_refused(
            [&](DraftFile& file) {
                DraftFile::Tensor& tensor = file.at(spec.name);
                tensor.bytes += tensor.bytes.substr(0, tensor.bytes.size() / tensor.shape.back());
                ++tensor.shape.back();
            },
            "tensor '" + spec.name + "' has the shape [");
    }
}

TEST(DflashContract, a_vector_in_blocks_and_a_matrix_of_integers_are_refused) {
    expect_refused(
        [](DraftFile& file) {
            DraftFile::Tensor& norm = file.at("output_norm.weight");
            norm.type = quant::Type::q8_0;
            norm.bytes.resize(96 / 32 * 34);
        },
        "tensor 'output_norm.weight' is of type Q8_0, wanted F32, F16 or BF16");
    expect_refused(
        [](DraftFile& file) {
            DraftFile::Tensor& fuse = file.at("fc.weight");
            fuse.type = quant::Type::i64;
            fuse.bytes.resize(fuse.bytes.size() * 4);
        },
        "tensor 'fc.weight' is of type I64, wanted a floating-point or quantized type");
}

TEST(DflashContract, a_tensor_of_another_kind_of_draft_is_named) {
    expect_refused(
        [](DraftFile& file) {
            file.tensors.push_back({"markov_w1", quant::Type::f32, {1}, std::string(4, '\0')});
        },
        "tensor 'markov_w1' is no part of a DFlash2 draft");
}

TEST(DflashContract, older_names_are_read) {
    const auto drafter = odd().changed([](DraftFile& file) {
        file.at("selector_hidden.weight").name = "selector.hidden_proj.weight";
        file.at("selector_predecessor.weight").name = "selector.pred_codebook";
        file.at("selector_successor.weight").name = "selector.succ_codebook";
        file.at("blk.0.attn_conv_base").name = "blk.0.attn_conv.base";
        file.at("blk.1.ffn_conv_proj.weight").name = "blk.1.ffn_conv.proj.weight";
    });
    EXPECT_TRUE(drafter.ok()) << drafter.error().message;
}

Value sections(const std::vector<std::int32_t>& parts) { return Value::array(parts); }

TEST(DflashContract, a_key_that_this_version_cannot_follow_is_named) {
    const std::tuple<const char*, Value, const char*> cases[] = {
        {"general.architecture", Value::string("llama"), "architecture 'llama', wanted a draft"},
        {"dflash.attention.causal", Value::of(true), "attention.causal is true, wanted false"},
        {"dflash.block_size", number(1), "a block has 1 rows, wanted 2 to"},
        {"dflash.block_size", number(65), "block_size is 65, wanted 1 to 64"},
        {"dflash.selector_top_k", number(65), "selector_top_k is 65, wanted 1 to 64"},
        {"dflash.conv_group_size", number(25), "groups of 25 channels, wanted a divisor"},
        {"dflash.rope.dimension_count", number(33), "the rotary width is 33"},
        {"dflash.attention.head_count", number(5), "5 heads and 2 key-value heads"},
        {"dflash.attention.value_length", number(16), "value_length is 16, wanted"},
        {"dflash.attention.sliding_window_pattern", Value::array(std::vector<std::int32_t>{1, 1}),
         "sliding_window_pattern is of type array of i32, wanted an array of 2 bools"},
        {"dflash.attention.sliding_window_pattern",
         Value::encoded(gguf::ValueType::array, gguf::ValueType::boolean, 3,
                        std::string("\1\1\1", 3)),
         "sliding_window_pattern has 3 entries, wanted an array of 2 bools"},
        {"dflash.context_length", number(0), "context_length is 0, wanted 1 to"},
        {"dflash.vocab_size", number(899), "vocab_size is 899, wanted the 900 rows of the"},
        {"dflash.rope.dimension_sections", sections({}), "sections has 0 as number 1, wanted 16:"},
        {"dflash.rope.dimension_sections", sections({15, 0}), "has 15 as number 1, wanted 16:"},
        {"dflash.rope.dimension_sections", sections({16, 1}), "has 1 as number 2, wanted 0:"},
        {"dflash.target_layers", Value::array(std::vector<std::int32_t>{2, 2}),
         "wanted ascending layers"},
        {"dflash.target_layers", Value::array(std::vector<std::int32_t>{0, 2}),
         "target_layers holds 0, wanted 1 to"},
        {"dflash.target_layers", Value::array(std::vector<std::int32_t>{}), "has 0 entries"},
        {"dflash.output_multiplier", Value::of(2.0f), "output_multiplier is 2, wanted 1"},
        {"dflash.embedding_scale", Value::of(1.0f + 0x1p-23f),
         "embedding_scale is 1.0000001192092896, wanted 1"},
        {"dflash.final_logit_softcapping", Value::of(30.0f), "softcapping is 30, wanted 0"},
        {"dflash.rope.scaling.type", Value::string("yarn"), "scaling.type is 'yarn'"},
        {"tokenizer.ggml.mask_token_id", number(900), "the mask token is 900"},
    };
    for (const auto& [key, value, part] : cases) {
        expect_refused([&](DraftFile& file) { file.set(key, value); }, part);
    }
}

// SPEC-14
TEST(DflashContract, a_key_that_is_needed_is_asked_for) {
    for (const char* key :
         {"dflash.block_count", "dflash.embedding_length", "dflash.feed_forward_length",
          "dflash.attention.head_count", "dflash.attention.head_count_kv",
          "dflash.attention.key_length", "dflash.attention.layer_norm_rms_epsilon",
          "dflash.rope.freq_base", "dflash.block_size", "dflash.target_layers",
          "dflash.conv_kernel_size", "dflash.conv_group_size", "dflash.selector_rank",
          "dflash.selector_top_k", "tokenizer.ggml.mask_token_id"}) {
        expect_refused([&](DraftFile& file) { file.erase(key); },
                       std::string("'") + key + "' is missing");
    }
}

// SPEC-25: a token more or fewer than the target has.
TEST(DflashContract, a_draft_of_another_target_is_refused_by_what_differs) {
    GoldenDraft& tiny = GoldenDraft::of("tiny");
    const auto other = tiny.try_drafter(odd().draft_path());
    ASSERT_FALSE(other.ok());
    EXPECT_NE(other.error().message.find("width is 96, wanted the target's 128"), std::string::npos)
        << other.error().message;
    for (const std::uint32_t tokens : {899, 901}) {
        expect_refused(
            [&](DraftFile& file) {
                for (const char* name :
                     {"selector_predecessor.weight", "selector_successor.weight"}) {
                    DraftFile::Tensor& codebook = file.at(name);
                    codebook.bytes.resize(codebook.bytes.size() / 900 * tokens);
                    codebook.shape[1] = tokens;
                }
                file.set("dflash.vocab_size", number(tokens));
            },
            "vocabulary is " + std::to_string(tokens) + ", wanted the target's 900");
    }
    expect_refused(
        [](DraftFile& file) {
            file.set("dflash.target_layers", Value::array(std::vector<std::int32_t>{2, 4, 5, 9}));
        },
        "after layer 8 of its target, wanted layers 0 to 7");
}

TEST(DflashContract, windows_are_the_layers_own) {
    const auto drafter = odd().changed([](DraftFile& file) {
        file.set("dflash.attention.sliding_window_pattern",
                 Value::encoded(gguf::ValueType::array, gguf::ValueType::boolean, 2,
                                std::string("\0\1", 2)));
    });
    ASSERT_TRUE(drafter.ok()) << drafter.error().message;
    const dflash::Config& config = (*drafter)->config();
    EXPECT_EQ(config.layer_window(0), 0);
    EXPECT_EQ(config.layer_window(1), 40);
    auto context = (*drafter)->make_context({500, op::CacheType::f16});
    ASSERT_TRUE(context.ok());
    EXPECT_EQ(context->cells()[0].slots, 500);
    EXPECT_EQ(context->cells()[1].slots, 40 + dflash::kRingSlack);
    const auto none = odd().changed([](DraftFile& file) {
        file.erase("dflash.attention.sliding_window");
        file.erase("dflash.attention.sliding_window_pattern");
    });
    ASSERT_TRUE(none.ok());
    EXPECT_EQ((*none)->config().layer_window(1), 0);
}

}  // namespace
}  // namespace strata::test
