// Models of random weights, in every geometry and format that can be asked for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "gguf/reader.h"
#include "model/config.h"
#include "model/tensors.h"
#include "strata/engine.h"
#include "strata/synth.h"
#include "synth/synth.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

class Synth : public ::testing::Test {
  protected:
    SynthRequest tiny(const std::string& name = "m.gguf") {
        SynthRequest request;
        request.preset = "tiny";
        request.output = folder_ / name;
        return request;
    }

    static gguf::File make(const SynthRequest& request) {
        const Status status = synthesize_model(request);
        EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
        return std::move(gguf::File::open(request.output)).value();
    }

    std::string refused(const SynthRequest& request) {
        const Status status = synthesize_model(request);
        EXPECT_FALSE(status.ok());
        EXPECT_TRUE(folder_.names().empty());
        return status.ok() ? "" : status.error().message;
    }

    // Whether the model computes, and to finite logits.
    static void expect_runs(const std::string& path) {
        auto engine = Engine::load({.model = path, .threads = 1});
        ASSERT_TRUE(engine.ok()) << engine.error().message;
        LogitsRequest request;
        request.tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
        const Status status = (*engine)->logits(request, [](std::span<const float> rows) {
            const auto finite = [](float value) { return std::isfinite(value); };
            EXPECT_TRUE(std::ranges::all_of(rows, finite));
            EXPECT_GT(*std::ranges::max_element(rows), *std::ranges::min_element(rows));
            return Status(Ok{});
        });
        EXPECT_TRUE(status.ok());
    }

    TempDir folder_;
};

TEST_F(Synth, sizes_that_are_given_replace_the_preset_s) {
    SynthRequest request = tiny();
    request.layers = 9;
    request.hidden = 96;
    request.vocabulary = 400;
    request.context = 1000;
    request.heads = 4;
    request.kv_heads = 4;
    request.head_dim = 16;
    request.delta_key_heads = 3;
    request.delta_value_heads = 9;
    request.experts = 8;
    request.experts_active = 3;
    request.expert_hidden = 32;
    request.shared_hidden = 48;
    request.stream_rank = 24;
    request.index_budget = 32;
    request.table_rows = 100;
    const auto config = model::config_from_gguf(make(request));
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->layers, 9);
    EXPECT_EQ(config->mtp_layers, 0);
    EXPECT_EQ(config->hidden, 96);
    EXPECT_EQ(config->vocabulary, 400);
    EXPECT_EQ(config->context, 1000);
    EXPECT_EQ(config->heads, 4);
    EXPECT_EQ(config->kv_heads, 4);
    EXPECT_EQ(config->head_dim, 16);
    EXPECT_EQ(config->delta_key_heads, 3);
    EXPECT_EQ(config->delta_value_heads, 9);
    EXPECT_EQ(config->experts, 8);
    EXPECT_EQ(config->experts_active, 3);
    EXPECT_EQ(config->expert_hidden, 32);
    EXPECT_EQ(config->shared_hidden, 48);
    EXPECT_EQ(config->stream_rank, 24);
    EXPECT_EQ(config->index_budget, 32);
    EXPECT_EQ(config->ngram.vocabulary, (std::vector<std::uint64_t>{101, 103}));
    const auto attends = std::ranges::count(config->kinds, model::LayerKind::sparse_attention);
    EXPECT_EQ(attends, 2);
    expect_runs(request.output);
}

TEST_F(Synth, a_preset_alone_is_its_own_geometry_and_mtp_is_asked_for) {
    SynthRequest request = tiny();
    const gguf::File plain = make(request);
    const auto config = model::config_from_gguf(plain);
    const auto preset = synth::preset("tiny");
    EXPECT_EQ(config->ngram.vocabulary, preset->ngram.vocabulary);
    EXPECT_EQ(config->ngram.multipliers, preset->ngram.multipliers);
    EXPECT_EQ(config->mtp_layers, 0);
    EXPECT_TRUE(model::missing_tensors(*config, plain).empty());
    request.mtp = true;
    request.output = folder_ / "mtp.gguf";
    EXPECT_EQ(model::config_from_gguf(make(request))->mtp_layers, 1);
    expect_runs(request.output);
}

TEST_F(Synth, a_smaller_vocabulary_has_a_smaller_table_and_an_end_token_of_its_own) {
    SynthRequest request = tiny();
    request.vocabulary = 166;
    const auto half = model::config_from_gguf(make(request));
    EXPECT_EQ(half->ngram.vocabulary.front(), 107U);
    request.vocabulary = 5;
    const auto least = model::config_from_gguf(make(request));
    EXPECT_EQ(least->ngram.end_token, 4);
}

TEST_F(Synth, every_format_that_is_written_makes_a_model_that_runs) {
    SynthRequest request = tiny();
    // Rows that every block divides.
    request.hidden = 256;
    request.expert_hidden = 256;
    request.experts = 4;
    request.type = "q8_0";
    std::istringstream types(writable_types());
    std::string type;
    int count = 0;
    while (std::getline(types >> std::ws, type, ',')) {
        request.experts_gate = request.experts_down = type;
        SCOPED_TRACE(type);
        const gguf::File file = make(request);
        const gguf::Tensor* gate = file.find_tensor("blk.0.ffn_gate_exps.weight");
        EXPECT_EQ(gate->type, quant::find_type(type)->type);
        // Rows of uniform values have a length of about 1.
        std::vector<float> values(gate->elements());
        quant::info(gate->type)
            .decode(gate->data.data(), values.data(), static_cast<std::int64_t>(values.size()));
        double squares = 0;
        for (const float value : values) squares += static_cast<double>(value) * value;
        EXPECT_NEAR(squares / (static_cast<double>(values.size()) / 256), 1, 0.25);
        expect_runs(request.output);
        ++count;
    }
    EXPECT_GE(count, 5);
}

TEST_F(Synth, the_seed_decides_every_value) {
    SynthRequest request = tiny();
    request.type = "q8_0";
    make(request);
    const std::string first = read_file(request.output);
    make(request);
    EXPECT_EQ(read_file(request.output), first);
    request.seed = 2;
    make(request);
    EXPECT_NE(read_file(request.output), first);
}

TEST_F(Synth, rows_of_blocks_differ) {
    SynthRequest request = tiny();
    request.type = "q8_0";
    const gguf::File file = make(request);
    for (const char* name : {"blk.0.ffn_gate_exps.weight", "token_embd.weight"}) {
        const gguf::Tensor* tensor = file.find_tensor(name);
        const std::uint64_t rows = tensor->elements() / tensor->shape[0];
        const std::size_t row_bytes = tensor->data.size() / rows;
        std::set<std::string> seen;
        for (std::uint64_t row = 0; row < rows; ++row) {
            const auto bytes = tensor->data.subspan(row * row_bytes, row_bytes);
            seen.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        }
        EXPECT_GT(seen.size(), rows * 9 / 10) << name;
    }
}

TEST_F(Synth, a_geometry_that_contradicts_itself_is_refused_by_name) {
    const auto with = [&](auto change) {
        SynthRequest request = tiny();
        change(request);
        return refused(request);
    };
    const auto names = [](const std::string& sentence, const std::string& part) {
        EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    };
    names(with([](auto& r) { r.preset = "large"; }), "'large'");
    names(with([](auto& r) { r.experts = 3; }), "4 of 3 experts");
    names(with([](auto& r) { r.experts = 5000; }), "5000 experts");
    names(with([](auto& r) { r.kv_heads = 4; }), "6 heads and 4 key-value heads");
    names(with([](auto& r) { r.delta_key_heads = 4; }), "6 value heads and 4 key heads");
    names(with([](auto& r) { r.head_dim = 4; }), "rotary width is 8");
    names(with([](auto& r) { r.index_budget = 6; }), "index keeps 6 rows");
    names(with([](auto& r) { r.layers = 1; }), "n-gram block lies in layer 1");
    names(with([](auto& r) { r.hidden = 0; }), "0 hidden values");
    names(with([](auto& r) { r.type = "q9_9"; }), "q9_9");
    names(with([](auto& r) { r.hidden = 100, r.type = "q8_0"; }), "rows of 100 values");
}

TEST_F(Synth, a_caller_that_wants_no_more_leaves_no_file) {
    const Status status = synthesize_model(
        tiny(), [](std::int64_t done, std::int64_t total) { return done < total / 2; });
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("interrupted"), std::string::npos);
    EXPECT_TRUE(folder_.names().empty());
}

}  // namespace
}  // namespace strata::test
