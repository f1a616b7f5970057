#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "model/config.h"
#include "tests/convert/convert_case.h"

namespace strata::test {
namespace {

using nlohmann::ordered_json;

class Checkpoint : public testing::Test {
  protected:
    // The configuration that the file of a changed config.json describes.
    model::Config config_of(const std::function<void(ordered_json&)>& change) const {
        HfCheckpoint changed = checkpoint_;
        change(changed.config);
        const gguf::File file = ConvertCase(changed).file();
        return std::move(model::config_from_gguf(file)).value();
    }
    std::string error_of(const std::function<void(ordered_json&)>& change) const {
        ordered_json config = checkpoint_.config;
        change(config);
        write_file(written_.input() + "/config.json", config.dump());
        return written_.error();
    }
    std::string error_of(const char* key, const ordered_json& value) const {
        return error_of([&](ordered_json& c) { c[key] = value; });
    }

    const HfCheckpoint checkpoint_ = HfCheckpoint::random(small_config());
    const ConvertCase written_{checkpoint_};
};
using ConvertConfig = Checkpoint;

TEST_F(ConvertConfig, layer_kinds_come_from_the_list_then_the_interval_then_four) {
    const auto kinds = checkpoint_.config.at("layer_types");
    const auto attends = [](const model::Config& c) {
        std::string out;
        for (const auto kind : c.kinds) {
            out += kind == model::LayerKind::sparse_attention ? 'a' : '-';
        }
        return out;
    };
    EXPECT_EQ(attends(config_of([](ordered_json& c) { c["full_attention_interval"] = 3; })),
              "-a-a");
    EXPECT_EQ(attends(config_of([](ordered_json& c) {
                  c.erase("layer_types");
                  c["full_attention_interval"] = 2;
              })),
              "-a-a");
    for (const char* name : {"qwen_sparse_attention", "deepseek_sparse_attention"}) {
        EXPECT_EQ(attends(config_of([&](ordered_json& c) { c["layer_types"][1] = name; })), "-a-a");
    }
    // By the interval of four, layer 1 is a delta net, whose tensors are not there.
    EXPECT_TRUE(says(error_of([](ordered_json& c) { c.erase("layer_types"); }),
                     "no tensor 'model.layers.1.linear_attn.in_proj_qkv.weight'"));
}

TEST_F(ConvertConfig, layers_of_no_regular_interval_keep_their_kinds) {
    auto config = small_config();
    config["layer_types"] = {"full_attention", "linear_attention", "linear_attention",
                             "full_attention"};
    const gguf::File file = ConvertCase(HfCheckpoint::random(config)).file();
    EXPECT_EQ(file.find("qwen4exp.full_attention_interval"), nullptr);
    using enum model::LayerKind;
    EXPECT_EQ(model::config_from_gguf(file).value().kinds,
              (std::vector{sparse_attention, delta_net, delta_net, sparse_attention}));
}

TEST_F(ConvertConfig, rope_keys_stand_at_the_top_or_inside) {
    const model::Config top = config_of([](ordered_json& c) {
        c.erase("rope_parameters");
        c["rope_theta"] = 5e5;
        c["partial_rotary_factor"] = 0.5;
        c["mrope_section"] = {2, 1, 1};
    });
    EXPECT_EQ(top.rope_base, 5e5);
    EXPECT_EQ(top.rotary_dim, 8);
    EXPECT_EQ(top.rope_sections, (std::vector{2, 1, 1, 0}));
    const model::Config inside = config_of([](ordered_json& c) {
        c["rope_parameters"] = {{"rope_theta", 123}, {"rope_type", "default"}};
    });
    EXPECT_EQ(inside.rope_base, 123);
    EXPECT_EQ(inside.rotary_dim, 4);
}

TEST_F(ConvertConfig, sections_that_are_not_stated_are_the_interleaved_ones) {
    const model::Config read =
        config_of([](ordered_json& c) { c["rope_parameters"]["partial_rotary_factor"] = 0.5; });
    EXPECT_EQ(read.rope_sections, (std::vector{2, 1, 1, 0}));
}

TEST_F(ConvertConfig, expert_weights_are_renormalized_unless_the_configuration_says_no) {
    EXPECT_TRUE(config_of([](ordered_json&) {}).renormalize_experts);
    EXPECT_TRUE(config_of([](ordered_json& c) { c["norm_topk_prob"] = true; }).renormalize_experts);
    EXPECT_FALSE(
        config_of([](ordered_json& c) { c["norm_topk_prob"] = false; }).renormalize_experts);
}

TEST_F(ConvertConfig, the_end_token_of_ngrams_is_the_first_of_the_text_configuration) {
    EXPECT_EQ(config_of([](ordered_json& c) { c["eos_token_id"] = 9; }).ngram.end_token, 9);
    HfCheckpoint nested = checkpoint_.other_layout();
    nested.config["eos_token_id"] = 30;
    const gguf::File file = ConvertCase(nested).file();
    EXPECT_EQ(file.find("qwen4exp.ple.eos_token_id")->as_uint(), 5U);
}

TEST_F(ConvertConfig, unknown_keys_are_ignored_and_null_is_as_good_as_missing) {
    const model::Config read = config_of([](ordered_json& c) {
        c["something_new"] = {{"a", 1}};
        c["rope_scaling"] = nullptr;
        c["seed"] = nullptr;
        c["hidden_act"] = nullptr;
    });
    EXPECT_EQ(read.hidden, 24);
}

TEST_F(ConvertConfig, values_that_this_version_does_not_compute_are_refused) {
    const std::vector<std::tuple<const char*, ordered_json, const char*>> cases = {
        {"model_type", "qwen3_next", "model_type is \"qwen3_next\", wanted \"qwen4_exp\""},
        {"model_type", nullptr, "model_type is missing"},
        {"architectures", {"LlamaForCausalLM"}, "architectures is [\"LlamaForCausalLM\"], wanted"},
        {"architectures", {"DFlash2DraftModel"}, "intermediate_size is missing"},
        {"architectures", "Qwen4ExpForCausalLM", "wanted a list of strings"},
        {"hidden_act", "gelu", "hidden_act is \"gelu\", wanted \"silu\""},
        {"output_gate_type", "silu", "output_gate_type is \"silu\", wanted \"sigmoid\""},
        {"attention_bias", true, "attention_bias is true, wanted false"},
        {"indexer_kv_heads", 2, "indexer_kv_heads is 2"},
        {"rope_type", "yarn", "rope_type is \"yarn\", wanted \"default\""},
        {"rope_parameters", {{"rope_type", "yarn"}}, "rope_parameters.rope_type is \"yarn\""},
        {"rope_scaling", {{"type", "linear"}}, "rope_scaling.type is \"linear\""},
        {"rope_parameters", 3, "rope_parameters is 3, wanted an object"},
        {"mtp_use_dedicated_embeddings", true, "mtp_use_dedicated_embeddings is true"},
        {"mtp_num_hidden_layers", 2, "mtp_num_hidden_layers is 2, wanted an integer from 0 to 1"},
        {"mtp", {{"layer_types", {"linear_attention"}}}, "mtp.layer_types"},
        {"mtp", {{"rope_theta", 5.0}}, "mtp.rope_theta is 5.0, wanted the model's own 10000"},
        {"mtp", {{"mtp_use_hidden_state_from_layer", 3}}, "wanted null"},
        {"ple_layer_ids", {1, 2}, "ple_layer_ids is [1,2], wanted one layer or none"},
        {"linear_value_head_dim", 3, "wanted linear_key_head_dim = 2"},
        {"layer_types", {"a", "b"}, "layer_types has 2 entries, wanted num_hidden_layers = 4"},
        {"layer_types",
         {"linear_attention", "sliding_attention", "linear_attention", "full_attention"},
         "layer_types[1] is \"sliding_attention\""},
    };
    for (const auto& [key, value, part] : cases) {
        const std::string sentence = error_of(key, value);
        EXPECT_TRUE(says(sentence, part)) << key;
        EXPECT_TRUE(says(sentence, "config.json")) << key;
    }
}

TEST_F(ConvertConfig, sizes_that_contradict_each_other_are_refused) {
    const std::vector<std::tuple<const char*, ordered_json, const char*>> cases = {
        {"linear_num_value_heads", 16, "16 value heads and 3 key heads"},
        {"num_attention_heads", 7, "7 heads and 2 key-value heads"},
        {"indexer_budget", 21, "21 rows in blocks of 5"},
        {"indexer_head_dim", 2, "the rotary width is 4"},
        {"num_experts_per_tok", 6, "6 of 4 experts"},
        {"hc_count", 1, "1 residual streams"},
        {"eos_token_id", 37, "eos_token_id is 37, wanted an integer from 0 to 36"},
        {"eos_token_id", nullptr, "eos_token_id is missing"},
        {"ple_layer_ids", {5}, "ple_layer_ids is [5], wanted an integer from 1 to 4"},
        {"ple_layer_ids", {0}, "ple_layer_ids is [0]"},
        {"ple_embed_dim", 41, "ple_embed_dim is 41, wanted a multiple of the 8 heads"},
        {"partial_rotary_factor", 0.26, "config.json"},
        {"rms_norm_eps", 0, "the norm epsilon is 0"},
    };
    for (const auto& [key, value, part] : cases) {
        const std::string sentence = error_of([&, key = key, value = value](ordered_json& c) {
            c[key] = value;
            if (std::string(key) == "partial_rotary_factor") c["rope_parameters"].erase(key);
        });
        EXPECT_TRUE(says(sentence, part)) << key;
    }
}

TEST_F(ConvertConfig, every_size_must_be_there_and_be_a_whole_number_in_range) {
    for (const char* key : {"hidden_size",
                            "num_hidden_layers",
                            "vocab_size",
                            "max_position_embeddings",
                            "hc_count",
                            "hc_lowrank",
                            "linear_num_key_heads",
                            "linear_num_value_heads",
                            "linear_key_head_dim",
                            "linear_value_head_dim",
                            "linear_conv_kernel_dim",
                            "num_attention_heads",
                            "num_key_value_heads",
                            "head_dim",
                            "indexer_n_heads",
                            "indexer_head_dim",
                            "indexer_budget",
                            "indexer_compress_ratio",
                            "num_experts",
                            "num_experts_per_tok",
                            "moe_intermediate_size",
                            "shared_expert_intermediate_size",
                            "ngram_size",
                            "heads_per_ngram",
                            "ple_embed_dim",
                            "ple_conv_kernel_size"}) {
        for (const ordered_json& value :
             {ordered_json(nullptr), ordered_json(0), ordered_json(-3), ordered_json(2.5),
              ordered_json("24"), ordered_json(true), ordered_json(std::uint64_t{1} << 63),
              ordered_json(std::int64_t{1} << 40), ordered_json(1e300),
              ordered_json(ordered_json::array()), ordered_json(ordered_json::object())}) {
            EXPECT_TRUE(says(error_of(key, value), key)) << value.dump();
        }
    }
}

TEST_F(ConvertConfig, a_configuration_that_is_anything_is_an_error) {
    const ConvertCase made(checkpoint_);
    const std::string deep = std::string(100000, '[') + std::string(100000, ']');
    const std::string nested = "{\"text_config\":" + deep + "}";
    const std::string text = checkpoint_.config.dump();
    for (const std::string& bytes :
         {std::string(), std::string("{"), std::string("[]"), std::string("null"),
          std::string("\xff\xfe"), std::string(1, '\0'), deep, nested, std::string("{\"a\":1e999}"),
          text.substr(0, text.size() / 2), text + "}"}) {
        write_file(made.input() + "/config.json", bytes);
        EXPECT_TRUE(says(made.error(), "config.json"));
    }
    std::filesystem::remove(made.input() + "/config.json");
    EXPECT_TRUE(says(made.error(), "config.json"));
}

TEST_F(ConvertConfig, a_configuration_with_changed_bytes_is_an_error_or_a_model) {
    const std::string text = checkpoint_.config.dump();
    std::mt19937 random(11);
    const std::string bytes = "0123456789-.e\"[]{},:\\ntfx";
    int errors = 0;
    for (int i = 0; i < 200; ++i) {
        std::string changed = text;
        for (int n = 0; n <= i % 3; ++n) {
            changed[random() % changed.size()] = bytes[random() % bytes.size()];
        }
        write_file(written_.input() + "/config.json", changed);
        const Status status = convert_checkpoint(written_.options());
        if (status.ok()) continue;
        ++errors;
        // A size that only the tensors contradict is told by naming a tensor.
        const std::string& sentence = status.error().message;
        EXPECT_TRUE(says(sentence, "config.json") || says(sentence, "tensor '")) << sentence;
    }
    EXPECT_GT(errors, 100);
}

}  // namespace
}  // namespace strata::test
