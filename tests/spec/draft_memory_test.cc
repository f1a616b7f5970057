// What a DFlash2 draft takes of memory is what the plan says, and a prompt takes no more of it.
#include <gtest/gtest.h>

#include <utility>

#include "engine/fit.h"
#include "spec/dflash_drafter.h"
#include "tests/spec/draft_case.h"

namespace strata::test {
namespace {

// Counts what is allocated of another device.
class Counting final : public device::Device {
  public:
    explicit Counting(std::unique_ptr<device::Device> inner) : inner_(std::move(inner)) {}

    std::uint64_t allocated() const { return allocated_; }

    std::string_view name() const override { return inner_->name(); }
    bool has_factors() const override { return inner_->has_factors(); }
    Result<device::Buffer> allocate(std::size_t bytes) override {
        allocated_ += bytes;
        return inner_->allocate(bytes);
    }
    Result<const std::byte*> resident(device::Queue& queue,
                                      std::span<const std::byte> bytes) override {
        return inner_->resident(queue, bytes);
    }
    void upload(device::Queue& queue, std::byte* to, std::span<const std::byte> from) override {
        inner_->upload(queue, to, from);
    }
    void download(device::Queue& queue, std::span<std::byte> to, const std::byte* from) override {
        inner_->download(queue, to, from);
    }
    void copy(device::Queue& queue, std::byte* to, const std::byte* from,
              std::size_t bytes) override {
        inner_->copy(queue, to, from, bytes);
    }
    void clear(device::Queue& queue, std::byte* data, std::size_t bytes) override {
        inner_->clear(queue, data, bytes);
    }
    std::unique_ptr<device::Queue> make_queue() override { return inner_->make_queue(); }

  private:
    // Buffers are the other's.
    void release(std::byte*, std::size_t) noexcept override {}

    std::unique_ptr<device::Device> inner_;
    std::uint64_t allocated_ = 0;
};

// SPEC-05, SPEC-13: per sequence and at its context; the rows of the longest step and those that
// wait for a guess are of the plan, and no step allocates.
TEST(DraftMemory, is_planned_before_any_of_it_is_taken) {
    constexpr std::int64_t kRowsMax = 32;  // as GoldenDraft has
    constexpr std::int64_t kContext = 300;
    Backend backend = std::move(make_cpu_backend({1})).value();
    auto counting = std::make_unique<Counting>(std::move(backend.device));
    const Counting& device = *counting;
    backend.device = std::move(counting);
    GoldenDraft golden("tiny", &backend);
    model::Target& target = golden.target();
    const gguf::File draft = gguf::File::open(golden.draft_path()).value();
    std::uint64_t tensors = 0;
    for (const gguf::Tensor& tensor : draft.tensors()) tensors += tensor.data.size();
    const auto fit = fit_engine({.context = kContext, .chunk = kRowsMax},
                                {.model = &target.file(), .dflash = &draft}, std::nullopt);
    ASSERT_TRUE(fit.ok()) << fit.error().message;

    const std::uint64_t before = device.allocated();
    const auto model = golden.drafter(golden.draft_path(), kRowsMax);
    const std::uint64_t workspace = dflash::BlockModel::workspace_bytes(model->config(), kRowsMax);
    EXPECT_GE(device.allocated() - before, workspace);
    EXPECT_LE(device.allocated() - before, workspace + tensors);
    const std::uint64_t loaded = device.allocated();
    const dflash::ContextOptions options{kContext, op::CacheType::f16};
    const auto drafter = spec::DflashDrafter::create(*model, options, 0).value();
    const std::uint64_t own = spec::DflashDrafter::bytes(model->config(), options);
    EXPECT_EQ(device.allocated() - loaded, own);
    EXPECT_EQ(fit->plan.drafter, tensors + workspace + own);

    model::Sequence sequence = target.make_sequence({kContext, op::CacheType::f16, false}).value();
    const std::uint64_t ready = device.allocated();
    std::vector<std::int32_t> text;
    while (sequence.length() + kRowsMax <= kContext) {
        model::StepRequest request;
        const std::vector<std::int32_t> chunk(kRowsMax, 5);
        request.tokens = chunk;
        const std::int64_t first = sequence.length();
        drafter->want({first, kRowsMax, kContext}, request);
        const auto result = target.step(sequence, request).value();
        ASSERT_TRUE(drafter->keep(first, chunk, result).ok());
        target.commit(sequence, kRowsMax);
        text.insert(text.end(), chunk.begin(), chunk.end());
    }
    text.push_back(6);
    EXPECT_TRUE(drafter->guess({text, 7, nullptr, {}}).ok());
    EXPECT_EQ(device.allocated(), ready);
    EXPECT_LE(device.allocated(), fit->plan.all());
}

}  // namespace
}  // namespace strata::test
