// Which number format each part of a model is written in, as a person names them.
#pragma once

#include <string>

#include "strata/result.h"

namespace strata {

// Names of number formats as the command line takes them ("f32", "q8_0", any case); empty: `type`.
struct TypeNames {
    std::string type = "bf16";  // of every matrix that no other field names
    std::string experts_gate;   // gate and up
    std::string experts_down;
    std::string dense;  // attention, delta nets, shared experts, n-gram block, MTP
    std::string hyper;  // hyper-connections
    std::string embedding;
    std::string head;
    std::string table;  // the n-gram table
};

// As TypeNames::type of quantize: what no other field names keeps its format.
inline constexpr const char* kKeepType = "keep";

// "f32, f16, ...": the formats that this build writes.
std::string writable_types();

// Error: a name that is none of them; `keep`: nor kKeepType as `type`.
Status check(const TypeNames& names, bool keep);

}  // namespace strata
