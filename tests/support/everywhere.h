// One case on every backend in the build.
#pragma once

#include <map>
#include <span>
#include <string>

#include "tests/support/backends.h"
#include "tests/support/compare.h"
#include "tests/support/weights.h"

namespace strata::test {

// Row counts on both sides of every edge that a kernel may have, and odd ones.
inline constexpr std::int64_t kRowCounts[] = {1, 2, 3, 5, 16, 17, 63, 64, 65, 130};

// For rows so wide that a single one is work for several threads.
inline constexpr std::int64_t kWideRowCounts[] = {1, 2, 5, 17};

inline void expect_same_output(const std::string& what, const std::vector<float>& got,
                               const std::vector<float>& want) {
    expect_same_bits(what, got, want);
}

// run(backend) on each backend. Results of one kind must be the same bits, whatever the number of
// threads (through expect_same_output of the result's type); use(result) sees one of each kind.
template <typename Run, typename Use>
void on_backends(const std::string& label, Run run, Use use) {
    std::map<std::string, decltype(run(backends().front()))> references;
    for (TestBackend& backend : backends()) {
        auto result = run(backend);
        const auto found = references.find(backend.kind);
        if (found != references.end()) {
            expect_same_output(backend.name + " against the reference, " + label, result,
                               found->second);
            continue;
        }
        use(result);
        references.emplace(backend.kind, std::move(result));
    }
}

// use(backend) on each backend that has a prompt route, with tests on that route (weights.h).
template <typename Use>
void on_prompt_backends(Use use) {
    const PromptRoute route;
    for (TestBackend& backend : backends()) {
        if (backend.backend.ops.prompts != nullptr) use(backend);
    }
}

}  // namespace strata::test
