// Drafters with a head of their own: of all tokens, or of some that they can propose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/rewrite.h"
#include "quant/type.h"

namespace strata::convert {

struct DraftHeadOptions {
    std::string draft;  // the drafter's; each as gguf::File::open takes it
    std::string target;
    std::string output;
    quant::Type type = quant::Type::q8_0;  // of the head
    // The tokens that the draft can propose, in any order; empty: all.
    std::vector<std::int32_t> vocabulary;
    // After every piece: bytes written, bytes in all. False ends the work.
    RewriteProgress progress;
};

// Of a DFlash2 draft: its tensors as they are, the target's embedding as it is, and the rows of its
// head that `vocabulary` names, with the map d2t from row to token where it names any. What of them
// the draft has already is replaced. A draft without a tokenizer gets the target's. Errors: a file
// that cannot be read or is not what it should be, a draft of another target, tokens that are
// outside the vocabulary, repeated or fewer than the selector chooses from, a type that the head's
// rows cannot be written in, an unwritable output, the caller wants no more.
Status add_draft_head(const DraftHeadOptions& options);

// Of an MTP layer, in a model's file or one of its own: the layer's tensors alone and as they are,
// with the rows of the target's head that `vocabulary` names, in the layer's block. Errors:
// likewise, tokens as few as one being enough.
Status add_mtp_head(const DraftHeadOptions& options);

}  // namespace strata::convert
