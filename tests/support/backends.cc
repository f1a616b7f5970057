#include "tests/support/backends.h"

#include <gtest/gtest.h>

namespace strata::test {
namespace {

std::vector<TestBackend> make_backends() {
    std::vector<TestBackend> made;
    // 3 is more threads than the rows of many cases, and divides few of them.
    for (const int threads : {1, 2, 3}) {
        auto backend = make_cpu_backend({.threads = threads});
        STRATA_CHECK(backend.ok());
        made.push_back(
            {"cpu, " + std::to_string(threads) + " threads", "cpu", std::move(backend).value()});
    }
    return made;
}

}  // namespace

std::vector<TestBackend>& backends() {
    static std::vector<TestBackend> made = make_backends();
    return made;
}

}  // namespace strata::test
