// Draft checkpoints to GGUF files, and what is said of those that cannot be.
#include <gtest/gtest.h>

#include <functional>

#include "spec/dflash/config.h"
#include "spec/dflash/tensors.h"
#include "tests/convert/convert_case.h"
#include "tests/golden/golden.h"

namespace strata::test {
namespace {

using nlohmann::ordered_json;

class ConvertDraft : public testing::Test {
  protected:
    std::string error_of(const std::function<void(ordered_json&)>& change) const {
        HfCheckpoint changed = checkpoint_;
        change(changed.config);
        return ConvertCase(changed).error();
    }
    HfCheckpoint checkpoint_ = HfCheckpoint::load(golden_directory("odd") + "/draft");
};

TEST_F(ConvertDraft, every_tensor_is_there_with_its_values_in_its_type) {
    for (const quant::Type type :
         {quant::Type::bf16, quant::Type::f32, quant::Type::q8_0, quant::Type::q4_0}) {
        const ConvertCase one(checkpoint_);
        convert::ConvertOptions options = one.options();
        options.types.type = type;
        const gguf::File file = one.file(options);
        const auto config = dflash::config_from_gguf(file);
        ASSERT_TRUE(config.ok()) << config.error().message;
        ASSERT_TRUE(dflash::check_tensors(*config, file).ok());
        ASSERT_EQ(file.tensors().size(), checkpoint_.tensors.size());
        std::size_t matrices = 0;
        for (const dflash::TensorSpec& spec : dflash::tensor_list(*config)) {
            const gguf::Tensor* tensor = file.find_tensor(spec.name);
            ASSERT_NE(tensor, nullptr) << spec.name;
            const bool matrix = spec.kind == dflash::TensorKind::matrix;
            matrices += matrix ? 1 : 0;
            EXPECT_EQ(tensor->type, matrix                                  ? type
                                    : spec.kind == dflash::TensorKind::kept ? quant::Type::bf16
                                                                            : quant::Type::f32)
                << spec.name;
            if (matrix && quant::info(type).block > 1) continue;
            EXPECT_EQ(values_of(*tensor), checkpoint_.at(spec.checkpoint_name).floats())
                << spec.name;
        }
        EXPECT_EQ(matrices, 2U * 7 + 1);
    }
}

TEST_F(ConvertDraft, the_keys_are_the_configurations) {
    const gguf::File file = ConvertCase(checkpoint_).file();
    const auto number = [&](const char* key) { return file.find(key)->as_uint().value_or(0); };
    EXPECT_EQ(file.find("general.architecture")->as_string(), "dflash");
    EXPECT_EQ(number("dflash.block_size"), 7U);
    EXPECT_EQ(number("dflash.conv_kernel_size"), 2U);
    EXPECT_EQ(number("dflash.conv_group_size"), 24U);
    EXPECT_EQ(number("dflash.selector_rank"), 12U);
    EXPECT_EQ(number("dflash.selector_top_k"), 5U);
    EXPECT_EQ(number("dflash.attention.sliding_window"), 40U);
    EXPECT_EQ(number("dflash.context_length"), 4096U);
    EXPECT_EQ(number("tokenizer.ggml.mask_token_id"), 890U);
    EXPECT_EQ(file.find("dflash.attention.causal")->as_bool(), false);
    EXPECT_EQ(file.find("dflash.target_layers")->as_ints(),
              (std::vector<std::int64_t>{2, 4, 5, 7}));
    EXPECT_EQ(file.find("dflash.target_layers")->element_type(), gguf::ValueType::i32);
    EXPECT_EQ(file.find("dflash.attention.sliding_window_pattern")->as_bools(),
              (std::vector<bool>{true, true}));
    EXPECT_EQ(file.find("dflash.rope.dimension_sections")->as_ints(),
              (std::vector<std::int64_t>{16, 0, 0, 0}));
    EXPECT_EQ(file.find("dflash.rope.freq_base")->as_float(), 1e7);
}

TEST_F(ConvertDraft, both_families_of_names_and_shards_give_the_same_file) {
    const std::string want = ConvertCase(checkpoint_).bytes();
    HfCheckpoint other = checkpoint_;
    other.tensors.clear();
    for (const auto& [name, tensor] : checkpoint_.tensors) {
        const bool codebook = name.ends_with("_codebook");
        other.tensors["model." + name + (codebook ? ".weight" : "")] = tensor;
    }
    EXPECT_EQ(ConvertCase(other).bytes(), want);
    const ConvertCase sharded(checkpoint_, 3);
    EXPECT_EQ(sharded.bytes(), want);
}

TEST_F(ConvertDraft, any_tensor_that_is_missing_is_named) {
    for (const auto& [name, tensor] : checkpoint_.tensors) {
        HfCheckpoint lacking = checkpoint_;
        lacking.tensors.erase(name);
        EXPECT_TRUE(says(ConvertCase(lacking).error(), "no tensor '" + name + "'"));
    }
}

TEST_F(ConvertDraft, any_tensor_of_another_shape_is_named_with_both_shapes) {
    for (const auto& [name, tensor] : checkpoint_.tensors) {
        HfCheckpoint changed = checkpoint_;
        HfTensor& odd = changed.tensors[name];
        odd.shape[0] += 1;
        odd.bytes += std::string(odd.bytes.size() / tensor.shape[0], 'x');
        EXPECT_TRUE(says(ConvertCase(changed).error(), "'" + name + "' has the shape ["));
    }
}

TEST_F(ConvertDraft, what_is_no_part_of_a_draft_is_named) {
    for (const char* name : {"embed_tokens.weight", "lm_head.weight", "layers.2.mlp.up_proj.weight",
                             "markov_w1.weight"}) {
        HfCheckpoint more = checkpoint_;
        more.tensors[name] = bf16_tensor({2}, {1, 2});
        EXPECT_TRUE(says(ConvertCase(more).error(), name));
    }
    HfCheckpoint quantized = checkpoint_;
    quantized.tensors["fc.weight"].dtype = "U8";
    quantized.tensors["fc.weight"].shape[1] *= 2;
    EXPECT_TRUE(says(ConvertCase(quantized).error(), "'fc.weight' is of type U8"));
}

TEST_F(ConvertDraft, what_this_version_does_not_compute_is_refused_by_key) {
    const std::tuple<const char*, ordered_json, const char*> cases[] = {
        {"is_causal", true, "is_causal is true, wanted false"},
        {"attention_bias", true, "attention_bias is true"},
        {"hidden_act", "gelu", "hidden_act is \"gelu\", wanted \"silu\""},
        {"rope_scaling", {{"type", "yarn"}}, "rope_scaling.type is \"yarn\""},
        {"input_embedding_scale", 2.0, "input_embedding_scale is 2.0, wanted 1"},
        {"output_multiplier", 0.5, "output_multiplier is 0.5, wanted 1"},
        {"final_logit_softcapping", 30.0, "final_logit_softcapping is 30.0, wanted null"},
        {"selector_vocab_size", 800, "selector_vocab_size is 800, wanted 900"},
        {"layer_types", {"sliding_attention", "linear_attention"}, "layer_types[1] is"},
        {"layer_types", {"sliding_attention"}, "layer_types has 1 entries, wanted"},
        {"num_target_layers", 5, "target_layer_ids is [1,3,4,6], wanted an integer from 0 to 4"},
        {"block_size", 8, "block_size is 8, wanted what"},
        {"rope_theta", 10000.0, "rope_theta is 10000.0, wanted what"},
        {"num_attention_heads", 5, "5 heads and 2 key-value heads"},
        {"vocab_size", 800, "mask_token_id is 890, wanted an integer from 0 to 799"},
        {"hidden_size", 100, "groups of 24 channels, wanted a divisor of the width 100"},
        {"intermediate_size", nullptr, "intermediate_size is missing"},
        {"dflash_config", nullptr, "target_layer_ids is missing"},
    };
    for (const auto& [key, value, part] : cases) {
        const std::string sentence =
            error_of([&, k = key, v = value](ordered_json& config) { config[k] = v; });
        EXPECT_TRUE(says(sentence, part)) << key;
        EXPECT_TRUE(says(sentence, "config.json")) << key;
    }
}

TEST_F(ConvertDraft, keys_may_stand_at_the_top_level) {
    const std::string want = ConvertCase(checkpoint_).bytes();
    HfCheckpoint flat = checkpoint_;
    flat.config.erase("block_size");
    for (const auto& [key, value] : checkpoint_.config["dflash_config"].items()) {
        flat.config[key] = value;
    }
    flat.config.erase("dflash_config");
    flat.config.erase("rope_parameters");
    EXPECT_EQ(ConvertCase(flat).bytes(), want);
}

// SPEC-14
TEST_F(ConvertDraft, a_block_size_that_stands_nowhere_is_asked_for) {
    const std::string sentence = error_of([](ordered_json& config) {
        config.erase("block_size");
        config["dflash_config"].erase("block_size");
    });
    EXPECT_TRUE(says(sentence, "block_size is missing"));
}

TEST_F(ConvertDraft, layers_slide_where_the_configuration_says_so) {
    const auto windows = [&](const std::function<void(ordered_json&)>& change) {
        HfCheckpoint changed = checkpoint_;
        change(changed.config);
        const auto config = dflash::config_from_gguf(ConvertCase(changed).file());
        EXPECT_TRUE(config.ok());
        return std::vector<std::int64_t>{config->layer_window(0), config->layer_window(1)};
    };
    using Windows = std::vector<std::int64_t>;
    EXPECT_EQ(windows([](ordered_json& c) { c.erase("layer_types"); }), (Windows{40, 40}));
    EXPECT_EQ(windows([](ordered_json& c) { c["use_sliding_window"] = false; }), (Windows{0, 0}));
    EXPECT_EQ(windows([](ordered_json& c) { c["sliding_window"] = nullptr; }), (Windows{0, 0}));
    EXPECT_EQ(windows([](ordered_json& c) {
                  c["layer_types"] = {"full_attention", "sliding_attention"};
              }),
              (Windows{0, 40}));
}

TEST_F(ConvertDraft, a_target_gives_its_tokenizer_and_must_fit) {
    const ConvertCase one(checkpoint_);
    convert::ConvertOptions options = one.options();
    options.target = golden_directory("odd") + "/target";
    EXPECT_NE(one.file(options).find("tokenizer.ggml.eos_token_id"), nullptr);
    options.target = golden_directory("tiny") + "/target";
    const ConvertCase other(checkpoint_);
    convert::ConvertOptions misfit = other.options();
    misfit.target = options.target;
    EXPECT_TRUE(says(other.error(misfit), "width is 96, wanted the target's 128"));
}

TEST_F(ConvertDraft, types_and_targets_that_it_cannot_have_are_refused) {
    const ConvertCase one(checkpoint_);
    convert::ConvertOptions options = one.options();
    options.types.head = quant::Type::q8_0;
    EXPECT_TRUE(says(one.error(options), "a type for the head was given (Q8_0)"));

    HfCheckpoint narrow = checkpoint_;
    narrow.config["intermediate_size"] = 24;
    for (const char* layer : {"layers.0.mlp.", "layers.1.mlp."}) {
        for (const char* name : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
            HfTensor& tensor = narrow.tensors[std::string(layer) + name];
            for (std::uint64_t& size : tensor.shape) size = size == 160 ? 24 : size;
            tensor.bytes.resize(2 * 24 * 96);
        }
    }
    const ConvertCase two(narrow);
    options = two.options();
    options.types.type = quant::Type::q8_0;
    EXPECT_TRUE(says(two.error(options),
                     "'blk.0.ffn_down.weight' has rows of 24 values, and Q8_0 wants a multiple"));

    const ConvertCase target(HfCheckpoint::random(small_config()));
    options = target.options();
    options.target = golden_directory("tiny") + "/target";
    EXPECT_TRUE(says(target.error(options), "wanted it for a drafter alone"));
}

}  // namespace
}  // namespace strata::test
