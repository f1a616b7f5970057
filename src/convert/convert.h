// A checkpoint in the public Hugging Face layout to a GGUF file that llama.cpp's readers
// understand.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "convert/type_choice.h"

namespace strata::convert {

struct ConvertOptions {
    std::string directory;  // config.json, safetensors, and what there is of the tokenizer
    std::string output;
    TypeChoice types;
    // False leaves the MTP layer out: llama.cpp builds without MTP for this architecture refuse a
    // file that has one.
    bool mtp = true;
    // Of a draft: its target, a checkpoint's directory or a GGUF file, whose tokenizer the draft
    // gets and whose sizes it must fit. Empty: neither.
    std::string target;
    // general.name; empty: the directory's name.
    std::string name;
    // After every piece: bytes written, bytes in all, the tensor's name. False ends the conversion.
    std::function<bool(std::uint64_t done, std::uint64_t total, std::string_view tensor)> progress;
};

// A target's checkpoint or a DFlash2 draft's, told apart by config.json. Reads and writes a few
// rows at a time, so memory does not grow with the model. The output appears whole or not at all.
// Errors: config.json or a tensor that does not fit the architecture, a quantized checkpoint, a
// type that a row width cannot hold, an unwritable output.
Status convert_checkpoint(const ConvertOptions& options);

}  // namespace strata::convert
