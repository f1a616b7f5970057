#include "backend/backend.h"

#include <gtest/gtest.h>

namespace strata::test {
namespace {

TEST(Backend, a_build_without_cuda_says_so) {
    const auto backend = make_cuda_backend(0);
    ASSERT_FALSE(backend.ok());
    EXPECT_NE(backend.error().message.find("a build without CUDA"), std::string::npos);
}

TEST(Backend, the_cpu_has_every_op) {
    const auto backend = make_cpu_backend({.threads = 1});
    ASSERT_TRUE(backend.ok());
#define STRATA_OP(name, Args) EXPECT_NE(backend->ops.name, nullptr) << #name;
#include "op/ops.def"
#undef STRATA_OP
}

TEST(Backend, a_thread_count_out_of_range_is_an_error) {
    for (const int threads : {-1, 257}) {
        const auto backend = make_cpu_backend({.threads = threads});
        ASSERT_FALSE(backend.ok());
        EXPECT_NE(backend.error().message.find(std::to_string(threads)), std::string::npos);
    }
}

}  // namespace
}  // namespace strata::test
