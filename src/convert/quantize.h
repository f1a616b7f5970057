// A GGUF model to the same model in other number formats.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "convert/rewrite.h"
#include "convert/type_choice.h"

namespace strata::convert {

struct QuantizeOptions {
    std::string input;  // as gguf::File::open takes it
    std::string output;
    TypeChoice types;
    bool keep = false;  // types.type is not used: what no other of its fields names stays as it is
    bool mtp = true;    // false: the MTP layer is left out
    bool only_mtp = false;   // everything but the MTP layer is left out
    std::string importance;  // a file as convert/importance.h says; empty: none
    int threads = 1;
    // After every piece: bytes written, bytes in all. False ends the work.
    RewriteProgress progress;
};

// A piece of a tensor at a time: decoded, encoded in its new type, written; copied where the type
// stays, where the values are no fractions and where the tensor has no class. Metadata is kept but
// for general.file_type and general.quantization_version, which say what is true of the output, and
// what told of the input's split and alignment, and of an MTP layer that is left out. Encoding is
// cut by rows among the threads, so their number changes no byte. The output appears whole or not
// at all. Errors: a file of another architecture or one that lacks tensors, an output that is a
// file of the input, a type that a row width cannot hold, a value that a type cannot, importance
// that is malformed or of another model, an unwritable output.
Status quantize(const QuantizeOptions& options);

}  // namespace strata::convert
