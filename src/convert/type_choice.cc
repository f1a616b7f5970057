#include "convert/type_choice.h"

#include "base/text.h"

namespace strata::convert {
namespace {

using model::TensorClass;
using quant::Type;

bool is_block_format(Type type) { return quant::info(type).block > 1; }

bool is_sensitive(std::string_view name) {
    return name.ends_with("ssm_alpha.weight") || name.ends_with("ssm_beta.weight") ||
           name.ends_with("indexer.q_proj.weight") || name.ends_with("indexer.k_proj.weight");
}

Type unchecked(const TypeChoice& choice, const model::TensorSpec& spec) {
    const Type dense = choice.dense.value_or(choice.type);
    switch (spec.tensor_class) {
        case TensorClass::small:
        case TensorClass::router:
            return Type::f32;
        case TensorClass::expert_gate:
            return choice.experts_gate.value_or(choice.type);
        case TensorClass::expert_down:
            return choice.experts_down.value_or(choice.type);
        case TensorClass::embedding:
            return choice.embedding.value_or(choice.type);
        case TensorClass::head:
            return choice.head.value_or(choice.type);
        case TensorClass::ngram_table:
            return choice.table.value_or(choice.type);
        case TensorClass::hyper_connection:
            return choice.hyper.value_or(is_block_format(choice.type) ? Type::bf16 : choice.type);
        case TensorClass::delta_net:
        case TensorClass::attention:
            return is_sensitive(spec.name) && is_block_format(dense) ? Type::bf16 : dense;
        case TensorClass::shared_expert:
        case TensorClass::ngram:
        case TensorClass::mtp:
            break;
    }
    return dense;
}

}  // namespace

Result<Type> parse_type(std::string_view text) {
    const quant::TypeInfo* info = quant::find_type(text);
    if (info == nullptr || info->encode == nullptr) {
        return STRATA_ERROR("'", text,
                            "' is no type that tensors can be written in, wanted one of ",
                            "f32, f16, bf16, q8_0, q4_0");
    }
    return info->type;
}

Result<Type> choose_type(const TypeChoice& choice, const model::TensorSpec& spec) {
    const Type type = unchecked(choice, spec);
    const quant::TypeInfo& info = quant::info(type);
    if (info.encode == nullptr) {
        return STRATA_ERROR("tensor '", spec.name, "' cannot be written as ", info.name,
                            ", wanted a type of fractions");
    }
    if (spec.shape[0] % static_cast<std::uint64_t>(info.block) != 0) {
        return STRATA_ERROR("tensor '", spec.name, "' has rows of ", spec.shape[0], " values, and ",
                            info.name, " wants a multiple of ", info.block,
                            "; choose another type for the ", model::class_name(spec.tensor_class));
    }
    return type;
}

std::uint32_t file_type(Type type) {
    switch (type) {
        case Type::f32:
            return 0;
        case Type::f16:
            return 1;
        case Type::q4_0:
            return 2;
        case Type::q8_0:
            return 7;
        case Type::bf16:
            return 32;
        case Type::i64:
            break;
    }
    return 1024;  // "guessed" in llama.cpp's list
}

}  // namespace strata::convert
