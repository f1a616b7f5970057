// The GGUF keys of a converted model, as llama.cpp spells them (model.md 3.4).
#pragma once

#include "base/result.h"
#include "convert/hf_config.h"
#include "gguf/reader.h"
#include "gguf/writer.h"
#include "tokenizer/vocabulary.h"

namespace strata::convert {

// general.architecture and every qwen4exp.* key.
void set_model_keys(const HfConfig& config, gguf::Writer& writer);

// Sets what `file` says of its blocks again, without what it says of those past `layers`.
void leave_out_mtp(const gguf::File& file, std::int64_t layers, gguf::Writer& writer);

// tokenizer.* of a vocabulary, as llama.cpp spells the keys.
void set_vocabulary_keys(const Vocabulary& vocabulary, gguf::Writer& writer);

// tokenizer.* from tokenizer.json, tokenizer_config.json and chat_template.jinja of `directory`. A
// checkpoint without tokenizer.json gets tokenizer.ggml.model = "none". Tokens are padded with
// unused ones to the model's vocabulary. The end tokens come from generation_config.json, else from
// config.json:
//   tokenizer.ggml.eos_token_id   the first
//   tokenizer.ggml.eot_token_id   the second, where there is one and the tokenizer names none
//   tokenizer.ggml.eos_token_ids  all of them, where there is more than one (Strata's own key)
// general.sampling.* are generation_config.json's. Errors: malformed files, more tokens than the
// model's vocabulary, an end token outside of it.
Status set_tokenizer_keys(const std::string& directory, const HfConfig& config,
                          gguf::Writer& writer);

}  // namespace strata::convert
