// I64: integers, kept as they are; no floats.
#include "quant/formats.h"

namespace strata::quant {

constinit const TypeInfo kI64 = {Type::i64, "I64", 1, 8, nullptr, nullptr};

}  // namespace strata::quant
