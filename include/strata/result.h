// A value or the sentence that says why there is none.
//
// Failures that a caller, a file or the machine can cause travel as Error values; broken
// invariants of our own go through STRATA_CHECK (strata/check.h), which ends the process.
// Nothing else in the core throws, prints or exits. (GCC 12 has no std::expected.)
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "strata/check.h"

namespace strata {

// One sentence naming the thing, the value found and the value wanted.
struct [[nodiscard]] Error {
    std::string message;
};

template <typename T>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    T& value() & {
        STRATA_CHECK(ok());
        return std::get<0>(state_);
    }
    const T& value() const& {
        STRATA_CHECK(ok());
        return std::get<0>(state_);
    }
    T&& value() && {
        STRATA_CHECK(ok());
        return std::get<0>(std::move(state_));
    }
    const Error& error() const {
        STRATA_CHECK(!ok());
        return std::get<1>(state_);
    }

    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

  private:
    std::variant<T, Error> state_;
};

// Success without a value.
struct Ok {};
using Status = Result<Ok>;

}  // namespace strata

#define STRATA_CONCAT_INNER(a, b) a##b
#define STRATA_CONCAT(a, b) STRATA_CONCAT_INNER(a, b)

// Leaves the function with the error of `expression` (a Status or a Result) if it has one.
#define STRATA_TRY(expression)                                        \
    do {                                                              \
        if (auto strata_status = (expression); !strata_status.ok())   \
            return ::strata::Error{std::move(strata_status).error()}; \
    } while (false)

// STRATA_ASSIGN(auto x, f()): x is f()'s value, or the function returns f()'s error.
#define STRATA_ASSIGN(declaration, expression) \
    STRATA_ASSIGN_INNER(STRATA_CONCAT(strata_result_, __LINE__), declaration, expression)
#define STRATA_ASSIGN_INNER(result, declaration, expression)  \
    auto result = (expression);                               \
    if (!result.ok()) return ::strata::Error{result.error()}; \
    declaration = std::move(result).value()
