// Which number format each tensor of a model is written in.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "model/tensors.h"
#include "quant/type.h"
#include "strata/types.h"

namespace strata::convert {

// `type` is for every matrix that none of the others names. Norms, convolutions, biases and routers
// are F32 whatever is asked for. Where `type` is a format of blocks, three kinds of small but
// sensitive matrices are BF16, as in the published files: the hyper-connections' (unless `hyper`
// says otherwise), the delta nets' alpha and beta, and the attention index's.
struct TypeChoice {
    quant::Type type = quant::Type::f16;
    std::optional<quant::Type> experts_gate;  // gate and up of the routed experts
    std::optional<quant::Type> experts_down;
    std::optional<quant::Type> dense;  // attention, delta nets, shared experts, n-gram block, MTP
    std::optional<quant::Type> hyper;  // hyper-connections
    std::optional<quant::Type> embedding;
    std::optional<quant::Type> head;
    std::optional<quant::Type> table;  // the n-gram table
};

// "f32", "q8_0", ...: what a person types. Errors name the types there are.
Result<quant::Type> parse_type(std::string_view text);

// The formats that `names` names. Error: a name that parse_type refuses.
Result<TypeChoice> read_types(const TypeNames& names);

// Whether a field other than `type` says what tensors of this class are written in.
bool names(const TypeChoice& choice, model::TensorClass c);

// A field of a TypeChoice, and what it is of.
using NamedType = std::pair<const std::optional<quant::Type>*, std::string_view>;

// Error: the first of them that was given; `why` ends its sentence.
Status refuse_types(std::initializer_list<NamedType> types, std::string_view why);
// Error: a format for a part that an MTP layer alone has not.
Status check_layer_types(const TypeChoice& choice);

// Errors: a format that cannot be written, a row width that the format's block does not divide.
Result<quant::Type> choose_type(const TypeChoice& choice, const model::TensorSpec& spec);

// The value of general.file_type for a model mostly of `type`.
std::uint32_t file_type(quant::Type type);

// Of general.quantization_version: the block layouts since 2023.
inline constexpr std::uint32_t kQuantizationVersion = 2;

// Error: a value, of tensor `name` of `file`, that `type` cannot hold: too large, or not finite.
Status check_range(quant::Type type, const std::string& file, std::string_view name,
                   std::span<const float> values);

}  // namespace strata::convert
