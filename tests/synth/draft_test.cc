// Random drafts beside random models: the public geometry, files that fit each other.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "gguf/reader.h"
#include "spec/dflash/config.h"
#include "spec/dflash/tensors.h"
#include "strata/convert.h"
#include "strata/engine.h"
#include "strata/synth.h"
#include "synth/synth.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

class SynthDraft : public ::testing::Test {
  protected:
    SynthRequest tiny() const {
        SynthRequest request;
        request.preset = "tiny";
        request.output = folder_ / "m.gguf";
        request.dflash = folder_ / "d.gguf";
        return request;
    }

    static void make(const SynthRequest& request) {
        const Status status = synthesize_model(request);
        ASSERT_TRUE(status.ok()) << status.error().message;
    }

    static Completion generate(Engine& engine, const Drafting& drafting) {
        GenerateRequest request;
        request.prompt = {1, 2, 3, 4, 1, 2, 3};
        request.max_tokens = 40;
        request.ignore_end_tokens = true;
        return engine.make_session(0, drafting).value().generate(request).value();
    }

    TempDir folder_;
};

void expect_says(const Status& status, const std::string& part) {
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
}

// dflash2.md 1.2 and 1.4: 36 matrices of 458,752,000 values, 45 other tensors of 144,313,600.
TEST_F(SynthDraft, the_full_model_s_draft_has_the_public_draft_s_geometry) {
    const auto draft = synth::draft_preset("flash-next", synth::preset("flash-next").value());
    ASSERT_TRUE(draft.ok());
    EXPECT_EQ(draft->target_layers, (std::vector<std::int64_t>{5, 15, 25, 35, 45}));
    EXPECT_EQ(draft->window, 2048);
    EXPECT_EQ(draft->block_size, 8);
    EXPECT_EQ(draft->mask_token, 248070);
    EXPECT_EQ(draft->conv_taps, 2);
    EXPECT_EQ(draft->conv_group, 16);
    EXPECT_EQ(draft->selector_rank, 256);
    EXPECT_EQ(draft->candidates, 16);
    EXPECT_EQ(draft->query_width(), 4096);
    EXPECT_EQ(draft->kv_width(), 1024);
    EXPECT_EQ(draft->rotary_dim, 128);
    EXPECT_EQ(draft->slides, std::vector<std::uint8_t>(5, 1));
    std::map<bool, std::pair<int, std::uint64_t>> of;  // matrices or others: tensors, values
    for (const dflash::TensorSpec& spec : dflash::tensor_list(*draft)) {
        std::uint64_t values = 1;
        for (const std::uint64_t n : spec.shape) values *= n;
        auto& [tensors, sum] = of[spec.kind == dflash::TensorKind::matrix];
        ++tensors;
        sum += values;
    }
    EXPECT_EQ(of[true], std::pair(36, std::uint64_t{458'752'000}));
    EXPECT_EQ(of[false], std::pair(45, std::uint64_t{144'313'600}));
}

TEST_F(SynthDraft, a_target_of_other_sizes_gets_a_draft_that_fits) {
    auto target = synth::preset("flash-next").value();
    for (const std::int64_t layers : {2, 5, 8, 13, 64}) {
        target.layers = layers;
        target.hidden = 40 * layers;
        target.vocabulary = 7 * layers;
        for (const char* preset : {"flash-next", "tiny"}) {
            const auto draft = synth::draft_preset(preset, target).value();
            EXPECT_TRUE(dflash::validate(draft).ok()) << preset << layers;
            EXPECT_TRUE(dflash::check_target(draft, target).ok()) << preset << layers;
        }
    }
    EXPECT_FALSE(synth::draft_preset("large", target).ok());
}

TEST_F(SynthDraft, model_and_draft_run_together_and_give_the_undrafted_text) {
    SynthRequest request = tiny();
    request.type = "q8_0";
    make(request);
    const auto engine =
        Engine::load({.model = request.output, .dflash = request.dflash, .threads = 1});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    const Completion want = generate(**engine, {});
    const Completion got =
        generate(**engine, {.kind = DraftKind::dflash, .rows = 5, .confidence_min = 0.0});
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.text, want.text);
    EXPECT_GT(got.draft.drafted, 0);
}

TEST_F(SynthDraft, every_tensor_is_there_in_the_type_asked_for_and_with_the_model_s_tokenizer) {
    SynthRequest request = tiny();
    request.type = "f32";
    for (const char* type : {"bf16", "q8_0", "q5_0", "q4_0"}) {
        request.dense = type;
        make(request);
        const auto draft = gguf::File::open(request.dflash).value();
        const auto model = gguf::File::open(request.output).value();
        const auto config = dflash::config_from_gguf(draft);
        ASSERT_TRUE(config.ok()) << config.error().message;
        EXPECT_TRUE(dflash::check_tensors(*config, draft).ok());
        const std::string report = inspect_file({.path = request.dflash}).value();
        EXPECT_NE(report.find("nothing that the model wants is missing"), std::string::npos);
        EXPECT_EQ(draft.tensors().size(), 15U * 3 + 6);
        EXPECT_EQ(draft.find_tensor("fc.weight")->type, quant::find_type(type)->type);
        EXPECT_EQ(draft.find_tensor("selector_hidden.weight")->type, quant::Type::bf16);
        EXPECT_EQ(draft.find_tensor("blk.2.ffn_conv_base")->type, quant::Type::f32);
        for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.eos_token_id"}) {
            ASSERT_NE(draft.find(key), nullptr);
            EXPECT_EQ(draft.find(key)->payload(), model.find(key)->payload());
        }
    }
}

TEST_F(SynthDraft, one_place_for_both_files_is_refused_by_any_name) {
    SynthRequest request = tiny();
    std::filesystem::create_symlink("m.gguf", folder_ / "link.gguf");
    for (const char* name : {"m.gguf", "./m.gguf", "link.gguf"}) {
        request.dflash = folder_ / name;
        expect_says(synthesize_model(request), "where the model goes");
    }
    EXPECT_EQ(folder_.names(), std::vector<std::string>{"link.gguf"});
}

TEST_F(SynthDraft, a_type_that_its_rows_cannot_hold_is_refused_before_anything_is_written) {
    SynthRequest request = tiny();
    request.dense = "q4_k";
    expect_says(synthesize_model(request), "rows of");
    // One that the model can hold.
    synth::SynthOptions options;
    options.config = synth::preset("tiny").value();
    options.types.dense = quant::Type::q8_0;
    options.draft = synth::draft_preset("tiny", options.config).value();
    options.draft->feed_width = 200;
    options.output = request.output;
    options.draft_output = request.dflash;
    expect_says(synth::synthesize(options),
                "'blk.0.ffn_down.weight' has rows of 200 values, and Q8_0 wants a multiple of 32");
    EXPECT_TRUE(folder_.names().empty());
}

TEST_F(SynthDraft, a_draft_that_cannot_be_written_leaves_the_model) {
    SynthRequest request = tiny();
    request.dflash = folder_ / "nowhere/d.gguf";
    expect_says(synthesize_model(request), "nowhere");
    EXPECT_TRUE(Engine::load({.model = request.output, .threads = 1}).ok());
    EXPECT_EQ(folder_.names(), std::vector<std::string>{"m.gguf"});
}

}  // namespace
}  // namespace strata::test
