// Checkpoints to GGUF, GGUF to other number formats, and what is in a GGUF file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/result.h"
#include "strata/types.h"

namespace strata {

struct ConvertRequest : TypeNames {
    std::string directory;
    std::string output;
    // Leaves the MTP layer out, for readers of this architecture that know none.
    bool no_mtp = false;
    // Of a draft: the checkpoint's directory or GGUF file of its target, whose tokenizer it gets
    // and whose sizes it must fit; empty: neither.
    std::string target;
};

// Bytes written and in all. False ends the work with an error.
using ConvertProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

// Writes request.output whole or not at all. Errors name the file, tensor or key, what was found
// and what was wanted.
Status convert_checkpoint(const ConvertRequest& request, const ConvertProgress& progress = {});

// `type` may be kKeepType.
struct QuantizeRequest : TypeNames {
    std::string input;  // a GGUF file, a part of a split set, or a folder holding one
    std::string output;
    bool no_mtp = false;    // leaves the MTP layer out
    bool only_mtp = false;  // leaves all else out: a file for EngineOptions::mtp
    // What gather_importance (strata/eval.h) or llama.cpp's imatrix wrote of the model: formats
    // that can then round the columns that matter more finely. Empty: none.
    std::string importance;
    int threads = 0;  // 0: all cores that this process may use; the file does not depend on it
};

// The same model in other number formats, one file, whole or not at all. Tensors that have their
// format already, and those whose name says nothing of a class, are copied as they are. Errors:
// another architecture, an output that is a file of the input, a format that a row width cannot
// hold, a value that a format cannot.
Status quantize_model(const QuantizeRequest& request, const ConvertProgress& progress = {});

struct DraftHeadRequest {
    std::string draft;   // the drafter's GGUF file
    std::string target;  // its target's
    std::string output;
    std::string type = "q8_0";             // of the head, named as in TypeNames
    std::vector<std::int32_t> vocabulary;  // tokens that the draft can propose; empty: all
};

// A DFlash2 draft with the target's embedding and head, or the rows of the head that `vocabulary`
// names, whole or not at all: it then needs neither of its target's. What the draft had of them is
// replaced. Errors: a draft of another target, tokens outside the vocabulary, repeated or fewer
// than the draft chooses from, an output that is a file of an input, a format that a row width
// cannot hold.
Status add_draft_head(const DraftHeadRequest& request, const ConvertProgress& progress = {});

// An MTP layer, of a model's file or alone, with the target's head or the rows of it that
// `vocabulary` names: a file for EngineOptions::mtp. A head that the layer had is replaced. Errors:
// likewise.
Status add_mtp_head(const DraftHeadRequest& request, const ConvertProgress& progress = {});

struct InspectRequest {
    std::string path;
    bool tensors = false;  // list every tensor
    bool json = false;     // one JSON object instead of a table
};

// The report as text. Error: not a GGUF file.
Result<std::string> inspect_file(const InspectRequest& request);

}  // namespace strata
