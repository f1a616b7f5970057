// What a model takes of a device, said before anything is allocated.

#include <gtest/gtest.h>

#include "model/plan.h"
#include "tests/model/tiny_target.h"

namespace strata::test {
namespace {

model::PlanOptions options_for(std::int64_t context) {
    model::PlanOptions options;
    options.sequence.context = context;
    options.rows_max = 64;
    return options;
}

TEST(Plan, counts_the_weights_and_the_state_that_a_sequence_allocates) {
    TinyTarget target;
    const gguf::File& file = target->file();
    model::PlanOptions options = options_for(64);
    const model::MemoryPlan without = model::plan_memory(file, target->config(), options);
    EXPECT_EQ(without.weights, model::weight_bytes(file, target->config()));
    EXPECT_EQ(without.state, model::Sequence::state_bytes(target->config(), options.sequence));
    EXPECT_EQ(without.drafter, 0u);
    options.ngram_resident = true;
    options.extra = {&file};
    options.drafter_context = 1000;
    const model::MemoryPlan with = model::plan_memory(file, target->config(), options);
    std::uint64_t all = 0;
    for (const gguf::Tensor& tensor : file.tensors()) all += tensor.data.size();
    EXPECT_EQ(with.weights, all);
    EXPECT_EQ(with.drafter, all + 1000);
    EXPECT_EQ(with.all(), with.weights + with.state + with.workspace + with.drafter + with.reserve);
}

TEST(Plan, a_context_that_does_not_fit_is_refused_with_the_longest_that_does) {
    TinyTarget target;
    const gguf::File& file = target->file();
    const model::Config& config = target->config();
    const std::uint64_t room = model::plan_memory(file, config, options_for(100)).all();
    EXPECT_TRUE(model::check_plan(file, config, options_for(100), room).ok());
    std::int64_t fits = 100;  // lengths that round up to the same bytes fit too
    while (model::plan_memory(file, config, options_for(fits + 1)).all() <= room) ++fits;
    const Status longer = model::check_plan(file, config, options_for(4096), room);
    ASSERT_FALSE(longer.ok());
    EXPECT_NE(longer.error().message.find("a context of " + std::to_string(fits) + " tokens"),
              std::string::npos)
        << longer.error().message;
    const Status nothing = model::check_plan(file, config, options_for(1), 1000);
    ASSERT_FALSE(nothing.ok());
    EXPECT_NE(nothing.error().message.find("fewer bits"), std::string::npos);
}

}  // namespace
}  // namespace strata::test
