// What a model takes of memory, said before anything is allocated, and the context that fits.

#include "model/plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/tiny_target.h"

namespace strata::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGB = 1'000'000'000;

model::PlanOptions options_for(std::int64_t context) {
    model::PlanOptions options;
    options.sequence.context = context;
    options.rows_max = 64;
    return options;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// The full model: 48 layers, of which 12 attend; files as model.md 5 has them.
class FullSize : public ::testing::Test {
  protected:
    FullSize() { options_.rows_max = 512; }

    Result<model::Fit> fit(std::uint64_t weights, const model::MemoryRoom& room) const {
        // The n-gram table, larger than any other part, is read row by row.
        return model::fit_memory({"full.gguf", weights, 28'800 * (kGB / 1000), 0}, config_,
                                 options_, room);
    }

    model::Config config_ = *synth::preset("flash-next");
    model::PlanOptions options_ = [] {
        model::PlanOptions options = options_for(262144);
        options.may_shrink = true;
        options.ngram_cache = 64 * kMiB;
        return options;
    }();
    // Experts, dense weights and embedding: Q2_0, IQ3_XXS with Q8_0, NVFP4 with Q8_0.
    static constexpr std::uint64_t kQ2 = 37'740'000'000;
    static constexpr std::uint64_t kIq3 = 48'130'000'000;
    static constexpr std::uint64_t kNvfp4 = 73'930'000'000;
};

TEST(Plan, counts_the_weights_and_the_state_that_a_sequence_allocates) {
    TinyTarget target;
    const gguf::File& file = target->file();
    const model::Config& config = target->config();
    model::PlanOptions options = options_for(64);
    const model::MemoryRoom device{kGB, kGB};
    const auto without =
        model::plan_memory(model::file_sizes(file, config, {}), config, options, device);
    EXPECT_EQ(without.weights, model::weight_bytes(file, config));
    EXPECT_EQ(without.state, model::Sequence::state_bytes(config, options.sequence));
    EXPECT_EQ(without.drafter, 0u);
    options.ngram_resident = true;
    options.drafter_context = [](std::int64_t context) { return 10u * std::uint64_t(context); };
    const auto with =
        model::plan_memory(model::file_sizes(file, config, {&file}), config, options, device);
    std::uint64_t all = 0;
    for (const gguf::Tensor& tensor : file.tensors()) all += tensor.data.size();
    EXPECT_EQ(with.weights, all);
    EXPECT_EQ(with.drafter, all + 640);
    EXPECT_EQ(with.all(), with.weights + with.state + with.workspace + with.drafter + with.reserve);
}

// Sizes from model.md 4: recurrent memories and histories of 36 delta nets, the n-gram block's
// history, an open block of 12 attention layers; 24 KiB and 6 KiB for every four rows.
TEST_F(FullSize, a_moment_and_rows_have_the_sizes_of_the_models_page) {
    EXPECT_EQ(model::Sequence::moment_bytes(config_, options_.sequence),
              113'246'208u + 4'423'680u + 368'640u + 18'432u);
    EXPECT_EQ(model::Sequence::rows_bytes(config_, options_.sequence, 262144),
              6'442'450'944u + 402'653'184u);
}

// MEM-02, MEM-06. A row takes 26,112 bytes in the sequence and as many, and its token, in a
// checkpoint; about 0.75 GB depend on nothing.
TEST_F(FullSize, machines_get_the_context_that_their_memory_has_room_for) {
    const auto expected = [](std::uint64_t memory, std::uint64_t weights) {
        return (static_cast<double>(memory) - static_cast<double>(weights) - 0.75e9) / 52'228;
    };
    for (const std::uint64_t gb : {36, 48, 64, 96, 128}) {
        for (const std::uint64_t weights : {kQ2, kIq3, kNvfp4}) {
            const double wanted = expected(gb * kGB, weights);
            const auto found = fit(weights, {gb * kGB, std::nullopt});
            if (wanted < 1024) {
                ASSERT_FALSE(found.ok()) << gb;
                EXPECT_TRUE(has(found.error().message, "fewer bits")) << found.error().message;
                continue;
            }
            ASSERT_TRUE(found.ok()) << found.error().message;
            EXPECT_NEAR(static_cast<double>(found->context), std::min(262144.0, wanted),
                        0.02 * wanted)
                << gb;
            EXPECT_EQ(found->note.empty(), found->context == 262144);
        }
    }
}

// MEM-02
TEST_F(FullSize, an_automatic_context_shrinks_and_says_so_and_one_asked_for_is_refused) {
    for (const bool gpu : {true, false}) {
        model::MemoryRoom room{kIq3 + 8 * kGB, std::nullopt};
        if (gpu) room = {64 * kGB, kIq3 + 4 * kGB};
        options_.may_shrink = true;
        const auto shrunk = fit(kIq3, room);
        ASSERT_TRUE(shrunk.ok()) << shrunk.error().message;
        EXPECT_EQ(shrunk->context % model::kContextStep, 0);
        EXPECT_LT(shrunk->context, 262144);
        const std::string context = std::to_string(shrunk->context);
        EXPECT_TRUE(has(shrunk->note, "the context is " + context + " tokens, not 262144"));
        EXPECT_EQ(shrunk->note.find('\n'), std::string::npos);

        options_.may_shrink = false;
        const auto refused = fit(kIq3, room);
        ASSERT_FALSE(refused.ok());
        const std::string& why = refused.error().message;
        const auto at = why.find("a context of ");
        ASSERT_NE(at, std::string::npos) << why;
        const std::int64_t fits = std::stoll(why.substr(at + 13));
        // What it names fits, and the next one that takes more bytes does not.
        options_.sequence.context = fits;
        EXPECT_TRUE(fit(kIq3, room).ok());
        options_.sequence.context = fits + 8;
        EXPECT_FALSE(fit(kIq3, room).ok());
        EXPECT_EQ(fits / model::kContextStep * model::kContextStep, shrunk->context);
        options_.sequence.context = 262144;
    }
}

// MEM-05
TEST_F(FullSize, every_plan_that_fits_has_room_for_a_checkpoint_of_the_whole_context) {
    int plans = 0;
    for (const bool gpu : {true, false}) {
        for (std::uint64_t gb = 38; gb <= 128; gb += 3) {
            model::MemoryRoom room{gb * kGB, std::nullopt};
            if (gpu) room = {gb * kGB / 4, 80 * kGB};
            const auto found = fit(kQ2, room);
            if (!found.ok()) continue;
            ++plans;
            const model::MemoryPlan& plan = found->plan;
            const std::uint64_t row = 24 * 1024 + 6144 / 4;
            EXPECT_GE(plan.checkpoints, 118'056'960 + row * std::uint64_t(found->context));
            EXPECT_LE(plan.checkpoints, room.host - (gpu ? 0 : plan.all()));
            EXPECT_LE(plan.all(), room.device.value_or(room.host));
        }
    }
    EXPECT_GT(plans, 50);
    options_.checkpoints = 0;  // asked for
    EXPECT_EQ(fit(kQ2, {128 * kGB, std::nullopt})->plan.checkpoints, 0u);
}

// MEM-06: exactly what is wanted is enough.
TEST_F(FullSize, the_guard_has_no_margin_of_its_own) {
    options_.may_shrink = false;
    const model::MemoryRoom host;
    const auto plan = model::plan_memory({"full.gguf", kQ2, 0, 0}, config_, options_, host);
    const std::uint64_t all = plan.all() + plan.checkpoints;
    EXPECT_TRUE(fit(kQ2, {all, std::nullopt}).ok());
    EXPECT_FALSE(fit(kQ2, {all - 1, std::nullopt}).ok());
    const auto there = model::plan_memory({"full.gguf", kQ2, 0, 0}, config_, options_, {0, 1});
    EXPECT_TRUE(fit(kQ2, {there.checkpoints, there.all()}).ok());
    EXPECT_FALSE(fit(kQ2, {there.checkpoints, there.all() - 1}).ok());
    EXPECT_FALSE(fit(kQ2, {there.checkpoints - 1, there.all()}).ok());
}

// Numbers that only files and options from outside have.
TEST_F(FullSize, no_sum_wraps_to_one_that_fits) {
    constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
    const model::MemoryPlan parts{
        .weights = kHalf, .state = kHalf, .workspace = 0, .drafter = 5, .reserve = 0};
    EXPECT_EQ(parts.all(), UINT64_MAX);
    options_.ngram_cache = kHalf - 1;
    options_.checkpoints = kHalf - 1;
    EXPECT_FALSE(fit(kIq3, {128 * kGB, std::nullopt}).ok());

    model::Config config = config_;
    config.kinds.assign(4096, model::LayerKind::sparse_attention);
    config.layers = 4096;
    config.kv_heads = 1;
    config.head_dim = 1 << 24;
    const model::SequenceOptions longest{INT32_MAX, op::CacheType::f32, false};
    EXPECT_EQ(model::Sequence::rows_bytes(config, longest, INT32_MAX), UINT64_MAX);
    EXPECT_GE(model::Sequence::state_bytes(config, longest), device::kCarvedMax);
    options_ = options_for(INT32_MAX);
    EXPECT_FALSE(
        model::fit_memory({"huge.gguf", 1, 0, 0}, config, options_, {128 * kGB, std::nullopt})
            .ok());
}

TEST_F(FullSize, memory_that_someone_limits_is_not_called_free) {
    const auto why = [&](const model::MemoryRoom& room) {
        const auto refused = fit(kIq3, room);
        return refused.ok() ? std::string("it fits") : refused.error().message;
    };
    const std::uint64_t host = 100 * kMiB;
    const std::uint64_t device = 200 * kMiB;
    EXPECT_TRUE(has(why({host, std::nullopt}), "; 100 MiB are free, and "));
    EXPECT_TRUE(has(why({host, std::nullopt, true}), "; --ram allows 100 MiB, and "));
    EXPECT_TRUE(has(why({host, device}),
                    "; 200 MiB are free there and 100 MiB are free in the host, and "));
    EXPECT_TRUE(
        has(why({host, device, true}), "; 200 MiB are free there and --ram allows 100 MiB, and "));
    EXPECT_TRUE(has(why({host, device, false, true}),
                    "; --vram allows 200 MiB and 100 MiB are free in the host, and "));
    EXPECT_TRUE(has(why({host, device, true, true}),
                    "; --vram allows 200 MiB and --ram allows 100 MiB, and "));
    EXPECT_TRUE(has(why({host, std::nullopt}), "a machine with more memory is wanted"));
    EXPECT_TRUE(has(why({host, std::nullopt, true}), "or a larger --ram is wanted"));
    EXPECT_TRUE(has(why({host, device, true}), "a machine with more memory is wanted"));
    EXPECT_TRUE(has(why({host, device, false, true}), "or a larger --vram is wanted"));
}

TEST_F(FullSize, a_refusal_names_what_would_make_room) {
    const auto why = [&](std::uint64_t drafters, const model::MemoryRoom& room) {
        const auto refused =
            model::fit_memory({"full.gguf", kIq3, 0, drafters}, config_, options_, room);
        return refused.ok() ? std::string("it fits") : refused.error().message;
    };
    const model::MemoryRoom host{64 * kGB, std::nullopt};
    EXPECT_EQ(why(0, host), "it fits");
    EXPECT_TRUE(has(why(0, {kIq3, std::nullopt}), "a file in fewer bits"));
    EXPECT_TRUE(has(why(20 * kGB, host), "without the drafter it would fit"));
    EXPECT_TRUE(has(why(0, {64 * kGB, kIq3}), "a file in fewer bits"));
    options_.checkpoints = 40 * kGB;
    EXPECT_TRUE(has(why(0, host), "fewer bytes of checkpoints"));
    options_.checkpoints.reset();
    options_.ngram_cache = 40 * kGB;
    EXPECT_TRUE(has(why(0, host), "fewer bytes of n-gram rows"));
    options_.ngram_cache = 0;
    options_.rows_max = 4096;
    options_.sequence.context = 1024;
    const model::MemoryRoom close{kIq3 + kGB / 2, std::nullopt};
    EXPECT_TRUE(has(why(0, close), "fewer tokens read at a time")) << why(0, close);
}

}  // namespace
}  // namespace strata::test
