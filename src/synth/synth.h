// Random-weight models of any geometry, for tests and benches.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "convert/type_choice.h"
#include "model/config.h"
#include "spec/dflash/config.h"
#include "tokenizer/vocabulary.h"

namespace strata::synth {

struct SynthOptions {
    model::Config config;
    convert::TypeChoice types;
    std::uint64_t seed = 1;
    // Adds the tokenizer of byte_vocabulary, where the model has rows enough for it.
    bool tokenizer = true;
    std::string output;
    // Of a DFlash2 draft for the model, which goes to draft_output.
    std::optional<dflash::Config> draft;
    std::string draft_output;
    // After every piece: bytes written, bytes in all, the draft's included. False ends the work.
    std::function<bool(std::uint64_t done, std::uint64_t total)> progress;
};

// Geometries by name: "tiny" has every part of the architecture at the smallest sizes that keep all
// edges (model.md 5); "flash-next" is the full model. Error: another name.
Result<model::Config> preset(std::string_view name);

// The draft that the presets' models have, by the preset's name, for a model that may have other
// sizes than the preset's: "flash-next" is the public one, "tiny" has 3 layers. Width, vocabulary
// and trained length are the target's; what of the rest the target has no room for is less: the
// layers that features are taken after, the mask token, the candidates, the channels of a group.
// Error: another name.
Result<dflash::Config> draft_preset(std::string_view name, const model::Config& target);

// Fills config.kinds: every fourth of config.layers attends.
void set_kinds(model::Config& config);

// Fills multipliers, vocabulary and offsets of config.ngram: heads of distinct primes from `base`
// on.
Status set_ngram_hash(model::Config& config, std::uint64_t base);

// A token a byte, in the order of the byte values, and after them <|endoftext|>, <|im_start|>,
// <|im_end|>, <think> and </think>; unused tokens up to `tokens`, which is at least
// kByteVocabularyTokens.
inline constexpr std::int64_t kByteVocabularyTokens = 261;
Vocabulary byte_vocabulary(std::int64_t tokens);

// Writes a model, and then its draft where one is asked for, whose values depend on seed and each
// tensor's name, shape and type alone, a few rows at a time. Matrices have rows of length about 1,
// gains are near 1, decays and convolutions vary, so that every mechanism shows in the output. A
// draft's matrices are of types.dense, or else of types.type; it has neither embedding nor head.
// Each file appears whole or not at all; where the draft cannot be written, the model stays.
// Errors, all but the last two before anything is written: a geometry that model::validate refuses,
// a draft that does not fit, a type that a row width cannot hold, one place for both files; an
// unwritable output, progress that ends the work.
//
// A matrix in a format of blocks is made of blocks drawn from a pool of kPoolValues random values
// that is encoded once a type and row width: encoders that search for the best codes are too slow
// to fill a large file. Its statistics are those of the format; its blocks repeat.
inline constexpr std::uint64_t kPoolValues = std::uint64_t{1} << 16;
Status synthesize(const SynthOptions& options);

}  // namespace strata::synth
