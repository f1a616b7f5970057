// Checkpoints to GGUF, and what is in a GGUF file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "strata/result.h"

namespace strata {

// Names of number formats as the command line takes them ("f32", "q8_0", any case); empty: `type`.
struct ConvertRequest {
    std::string directory;
    std::string output;
    std::string type = "bf16";  // of every matrix that no other field names
    std::string experts_gate;   // gate and up
    std::string experts_down;
    std::string dense;  // attention, delta nets, shared experts, n-gram block, MTP
    std::string hyper;  // hyper-connections
    std::string embedding;
    std::string head;
    std::string table;  // the n-gram table
    // Leaves the MTP layer out, for readers of this architecture that know none.
    bool no_mtp = false;
    // Of a draft: the checkpoint's directory or GGUF file of its target, whose tokenizer it gets
    // and whose sizes it must fit; empty: neither.
    std::string target;
};

// Bytes written and in all. False ends the conversion with an error.
using ConvertProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

// Writes request.output whole or not at all. Errors name the file, tensor or key, what was found
// and what was wanted.
Status convert_checkpoint(const ConvertRequest& request, const ConvertProgress& progress = {});

struct InspectRequest {
    std::string path;
    bool tensors = false;  // list every tensor
    bool json = false;     // one JSON object instead of a table
};

// The report as text. Error: not a GGUF file.
Result<std::string> inspect_file(const InspectRequest& request);

}  // namespace strata
