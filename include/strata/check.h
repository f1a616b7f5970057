// Invariants of our own code. A failed check is a bug in Strata, never the answer to bad input.
#pragma once

namespace strata {

// Ends the process with the place and the text of the condition that did not hold.
[[noreturn]] void check_failed(const char* file, int line, const char* condition) noexcept;

}  // namespace strata

#define STRATA_CHECK(condition)                                                   \
    do {                                                                          \
        if (!(condition)) ::strata::check_failed(__FILE__, __LINE__, #condition); \
    } while (false)
