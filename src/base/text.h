// Building sentences without std::format (GCC 12 has none).
#pragma once

#include <locale>
#include <sstream>
#include <string>

#include "base/result.h"

namespace strata {

// The arguments one after another, as operator<< writes them.
template <typename... Parts>
std::string concat(const Parts&... parts) {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    (out << ... << parts);
    return out.str();
}

}  // namespace strata

// An error whose sentence is the arguments one after another.
#define STRATA_ERROR(...) (::strata::Error{::strata::concat(__VA_ARGS__)})
