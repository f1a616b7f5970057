// Every format of this build, one file each; the table in type.cc lists them.
#pragma once

#include "quant/type.h"

namespace strata::quant {

extern const TypeInfo kF32;
extern const TypeInfo kF16;
extern const TypeInfo kBF16;
extern const TypeInfo kI64;
extern const TypeInfo kQ4_0;
extern const TypeInfo kQ8_0;

}  // namespace strata::quant
