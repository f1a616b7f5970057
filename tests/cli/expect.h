// What a run of the program must have ended with.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run_binary.h"

namespace strata::test {

// Done, nothing told, nothing left running.
void expect_done(const Ran& ran);

// Ended with `status` and one sentence on standard error that holds `part`; standard output empty.
void expect_refused(const Ran& ran, int status, const std::string& part);

inline void expect_failed(const Ran& ran, const std::string& part) { expect_refused(ran, 1, part); }
inline void expect_wrong_use(const Ran& ran, const std::string& part) {
    expect_refused(ran, 2, part);
}

// Standard output of a run that is done, as JSON.
nlohmann::ordered_json json_of(const Ran& ran);

}  // namespace strata::test
