// Dumped features: what `features` gives, for every row that a session keeps and for no other.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "strata/engine.h"
#include "strata/half.h"
#include "synth/synth.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

using Tokens = std::vector<std::int32_t>;

template <typename T>
std::vector<T> read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
}

class Dumps : public ::testing::Test {
  protected:
    Dumps() {
        synth::SynthOptions synth;
        synth.config = synth::preset("tiny").value();
        synth.output = model_ = folder_ / "tiny.gguf";
        EXPECT_TRUE(synth::synthesize(synth).ok());
        prefix_ = folder_ / "rows";
    }

    Result<std::unique_ptr<Engine>> load(const DumpOptions& dump) {
        return Engine::load({.model = model_, .context = 100, .chunk = 4, .dump = dump});
    }

    // The halves of what a pass over `tokens` has after `layers`.
    std::vector<std::uint16_t> features(const Tokens& tokens,
                                        const std::vector<std::int64_t>& layers) {
        std::vector<std::uint16_t> halves;
        const auto engine = load({}).value();
        EXPECT_TRUE(engine
                        ->features(tokens, layers,
                                   [&](std::span<const float> rows) -> Status {
                                       for (const float x : rows) halves.push_back(half_bits(x));
                                       return Ok{};
                                   })
                        .ok());
        return halves;
    }

    TempDir folder_;
    std::string model_;
    std::string prefix_;
};

TEST_F(Dumps, every_kept_row_of_every_turn_and_drafter_is_written_once) {
    const std::vector<std::int64_t> layers = {0, 2};
    Tokens indexed;
    std::vector<std::uint16_t> wanted;
    for (const DraftKind kind : {DraftKind::none, DraftKind::mtp, DraftKind::suffix}) {
        const auto engine = load({.prefix = prefix_, .layers = layers, .residual = true}).value();
        Session session = engine->make_session(0, {.kind = kind, .rows = 5}).value();
        GenerateRequest request;
        request.prompt = {1, 2, 3, 1, 2, 3, 1, 2};
        request.max_tokens = 9;
        request.ignore_end_tokens = true;
        for (int turn = 0; turn < 2; ++turn) {
            const Completion done = session.generate(request).value();
            request.prompt.insert(request.prompt.end(), done.tokens.begin(), done.tokens.end());
            request.prompt.push_back(7);
        }
        const Tokens kept(session.tokens().begin(), session.tokens().end());
        for (std::size_t i = 0; i < kept.size(); ++i) {
            indexed.insert(indexed.end(), {static_cast<std::int32_t>(i), kept[i]});
        }
        const auto rows = features(kept, layers);
        wanted.insert(wanted.end(), rows.begin(), rows.end());
    }
    EXPECT_EQ(read<std::int32_t>(prefix_ + ".idx"), indexed);
    EXPECT_EQ(read<std::uint16_t>(prefix_ + ".f16"), wanted);
}

TEST_F(Dumps, the_mean_of_the_dumped_streams_is_the_last_layer_s_feature) {
    const auto engine = load({.prefix = prefix_, .layers = {3}, .residual = true}).value();
    const std::int64_t hidden = engine->info().hidden;
    Session session = engine->make_session().value();
    ASSERT_TRUE(session.generate({.prompt = {5, 6, 7, 8, 9, 10}, .max_tokens = 0}).ok());
    const auto mean = read<_Float16>(prefix_ + ".f16");
    const auto streams = read<_Float16>(prefix_ + ".res");
    const std::int64_t count = static_cast<std::int64_t>(streams.size() / mean.size());
    ASSERT_EQ(streams.size(), mean.size() * static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < mean.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) / hidden;
        const auto column = static_cast<std::int64_t>(i) % hidden;
        float sum = 0;
        for (std::int64_t s = 0; s < count; ++s) {
            sum += static_cast<float>(
                streams[static_cast<std::size_t>((row * count + s) * hidden + column)]);
        }
        EXPECT_NEAR(static_cast<float>(mean[i]), sum / static_cast<float>(count), 2e-2F);
    }
}

TEST_F(Dumps, files_are_gone_on_with_and_rows_of_another_kind_refused) {
    const auto run = [&](const DumpOptions& dump) {
        auto engine = load(dump);
        if (!engine.ok()) return false;
        Session session = (*engine)->make_session().value();
        return session.generate({.prompt = {5, 6, 7}, .max_tokens = 0}).ok();
    };
    EXPECT_TRUE(run({.prefix = prefix_, .layers = {1}}));
    const auto bytes = std::filesystem::file_size(prefix_ + ".f16");
    // A row whose writing was cut short.
    std::ofstream(prefix_ + ".f16", std::ios::app | std::ios::binary) << "abc";
    EXPECT_TRUE(run({.prefix = prefix_, .layers = {1}}));
    EXPECT_EQ(std::filesystem::file_size(prefix_ + ".f16"), 2 * bytes);
    EXPECT_FALSE(run({.prefix = prefix_, .layers = {2}}));
    EXPECT_FALSE(run({.prefix = prefix_, .layers = {1}, .residual = true}));
    EXPECT_EQ(std::filesystem::file_size(prefix_ + ".f16"), 2 * bytes);
    EXPECT_FALSE(run({.prefix = folder_ / "others", .layers = {2, 1}}));
    EXPECT_FALSE(run({.prefix = folder_ / "others", .layers = {4}}));
    EXPECT_FALSE(run({.prefix = folder_ / "absent/rows"}));
}

// What only looks like a dump, or has lost a part of one, is left as it is.
TEST_F(Dumps, files_that_are_no_dump_together_are_refused_and_kept) {
    const auto run = [&](const std::string& prefix) {
        auto engine = load({.prefix = prefix, .layers = {1}, .residual = true});
        if (!engine.ok()) return engine.error().message;
        Session session = (*engine)->make_session().value();
        EXPECT_TRUE(session.generate({.prompt = {5, 6, 7}, .max_tokens = 0}).ok());
        return std::string();
    };
    for (const char* name : {".json", ".idx", ".f16", ".res"}) {
        const std::string foreign = folder_ / "notes";
        std::ofstream(foreign + name) << "of a year";
        EXPECT_NE(run(foreign).find("wanted"), std::string::npos) << name;
        EXPECT_EQ(std::filesystem::file_size(foreign + name), 9U) << name;
        std::filesystem::remove(foreign + name);
    }
    ASSERT_EQ(run(prefix_), "");
    for (const char* name : {".json", ".idx", ".f16", ".res"}) {
        std::filesystem::rename(prefix_ + name, prefix_ + ".away");
        EXPECT_NE(run(prefix_).find("wanted"), std::string::npos) << name;
        std::filesystem::rename(prefix_ + ".away", prefix_ + name);
    }
    EXPECT_EQ(run(prefix_), "");
    EXPECT_EQ(read<std::int32_t>(prefix_ + ".idx").size(), 2U * 6);
}

TEST(FeatureLayers, are_the_published_ones_where_a_model_is_deep_enough) {
    using Layers = std::vector<std::int64_t>;
    EXPECT_EQ(default_feature_layers(48), (Layers{5, 15, 25, 35, 45}));
    EXPECT_EQ(default_feature_layers(64), (Layers{5, 19, 33, 47, 61}));
    EXPECT_EQ(default_feature_layers(45), (Layers{5, 14, 24, 33, 42}));
    EXPECT_EQ(default_feature_layers(12), (Layers{5, 6, 7, 8, 9}));
    EXPECT_EQ(default_feature_layers(11), (Layers{0, 2, 5, 8, 10}));
    EXPECT_EQ(default_feature_layers(3), (Layers{0, 1, 2}));
    EXPECT_EQ(default_feature_layers(1), (Layers{0}));
}

}  // namespace
}  // namespace strata::test
