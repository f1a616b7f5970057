// Factors of matrices. NVFP4 keeps a scale a block in eight bits; a file may have a second scale a
// matrix, or an expert, in a tensor of its own: "X.scale" multiplies what "X.weight" stores.
#pragma once

#include <vector>

#include "gguf/reader.h"

namespace strata::model {

// One for each of the matrix's [rows, cols]: of experts as many as there are, else one. Empty where
// the file has none. Errors: the type keeps no such factor, they are not F32, or as many as wanted.
Result<std::vector<float>> factors_of(const gguf::File& file, const gguf::Tensor& matrix);

// The matrix whose factors these are, or whose inputs' they are ("X.input_scale", which matters to
// products of inputs in four bits alone); null where there is none.
const gguf::Tensor* matrix_of_factors(const gguf::File& file, const gguf::Tensor& factors);

// Error: the tensor has factors, where only what is stored is read.
Status refuse_factors(const gguf::File& file, const gguf::Tensor& tensor);

}  // namespace strata::model
