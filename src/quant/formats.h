// Every format of this build, one file each; the table in type.cc lists them.
#pragma once

#include "quant/type.h"

namespace strata::quant {

extern const TypeInfo kF32;
extern const TypeInfo kF16;
extern const TypeInfo kBF16;
extern const TypeInfo kI64;
extern const TypeInfo kQ8_0;
extern const TypeInfo kQ5_1;
extern const TypeInfo kQ5_0;
extern const TypeInfo kQ4_0;
extern const TypeInfo kQ2_0;
extern const TypeInfo kQ6_K;
extern const TypeInfo kQ5_K;
extern const TypeInfo kQ4_K;
extern const TypeInfo kQ3_K;
extern const TypeInfo kQ2_K;
extern const TypeInfo kIQ4_XS;
extern const TypeInfo kIQ4_NL;
extern const TypeInfo kIQ3_S;
extern const TypeInfo kIQ3_XXS;
extern const TypeInfo kIQ2_S;
extern const TypeInfo kIQ2_XS;
extern const TypeInfo kIQ2_XXS;
extern const TypeInfo kIQ1_M;
extern const TypeInfo kMXFP4;
extern const TypeInfo kNVFP4;

}  // namespace strata::quant
