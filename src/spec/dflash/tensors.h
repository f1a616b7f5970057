// Every tensor of a DFlash2 draft: the only place that spells their names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"
#include "spec/dflash/config.h"

namespace strata::dflash {

enum class TensorKind : std::uint8_t {
    matrix,   // of the backbone: in any type
    kept,     // other matrices and the codebooks: BF16 in files of ours
    numbers,  // norms and convolution kernels: F32 in files of ours
};

struct TensorSpec {
    std::string name;                  // as llama.cpp writes it
    std::string other_name;            // as older files have it; empty: the same
    std::vector<std::uint64_t> shape;  // GGUF order: row width first
    TensorKind kind = TensorKind::matrix;
    std::string checkpoint_name;  // without "model."
};

inline constexpr std::string_view kEmbeddingName = "token_embd.weight";
inline constexpr std::string_view kHeadName = "output.weight";
inline constexpr std::string_view kMapName = "d2t";

// 15 a layer and 6 more, in the order in which Strata writes them.
std::vector<TensorSpec> tensor_list(const Config& config);

// Under either name; null if there is none.
const gguf::Tensor* find_tensor(const gguf::File& file, const TensorSpec& spec);

// The contract of a draft file: all of tensor_list, of their shapes, in types that their places can
// hold; an embedding, a head and a draft vocabulary's map that fit each other, where given; and
// nothing else. Errors name the tensor, what was found and what was wanted.
Status check_tensors(const Config& config, const gguf::File& file);

}  // namespace strata::dflash
