#include "convert/draft_head.h"

#include <utility>
#include <vector>

#include "base/text.h"
#include "convert/head_rows.h"
#include "convert/rewrite.h"
#include "gguf/reader.h"
#include "gguf/writer.h"
#include "model/config.h"
#include "model/factors.h"
#include "model/tensors.h"
#include "spec/dflash/config.h"
#include "spec/dflash/tensors.h"

namespace strata::convert {
namespace {

// What the output holds, in its order: tensors as they are, then the head and its tokens.
struct Contents {
    std::vector<const gguf::Tensor*> copied;
    HeadRows head;
    std::string head_name;
    std::string map_name;
};

Status write(const DraftHeadOptions& options, Contents& contents, gguf::Writer& writer) {
    std::uint64_t total = contents.head.bytes();
    for (const gguf::Tensor* tensor : contents.copied) {
        STRATA_TRY(writer.add_tensor(tensor->name, tensor->type, tensor->shape));
        total += tensor->data.size();
    }
    STRATA_TRY(contents.head.declare(contents.head_name, contents.map_name, writer));
    STRATA_TRY(writer.begin(options.output));
    TensorData data(writer, options.progress, total);
    for (const gguf::Tensor* tensor : contents.copied) STRATA_TRY(data.copy(tensor->data));
    STRATA_TRY(contents.head.write(data));
    return writer.commit();
}

// All but what comes from the target.
std::vector<const gguf::Tensor*> own_tensors(const gguf::File& draft) {
    std::vector<const gguf::Tensor*> own;
    for (const gguf::Tensor& tensor : draft.tensors()) {
        const bool replaced = tensor.name == dflash::kEmbeddingName ||
                              tensor.name == dflash::kHeadName || tensor.name == dflash::kMapName;
        if (!replaced) own.push_back(&tensor);
    }
    return own;
}

// The layer's but for a head that it has. Error: factors that do not fit their matrix.
Result<std::vector<const gguf::Tensor*>> layer_tensors(const gguf::File& file,
                                                       const std::string& block) {
    const std::string head_name = concat(block, model::kMtpHeadName);
    const std::string map_name = concat(block, model::kMtpMapName);
    const gguf::Tensor* head = file.find_tensor(head_name);
    std::vector<const gguf::Tensor*> own;
    for (const gguf::Tensor& tensor : file.tensors()) {
        if (!tensor.name.starts_with(block)) continue;
        if (tensor.name == head_name || tensor.name == map_name) continue;
        if (head != nullptr && model::matrix_of_factors(file, tensor) == head) continue;
        STRATA_TRY(model::factors_of(file, tensor));
        own.push_back(&tensor);
    }
    return own;
}

}  // namespace

Status add_draft_head(const DraftHeadOptions& options) {
    STRATA_ASSIGN(const gguf::File draft, gguf::File::open(options.draft));
    STRATA_ASSIGN(const gguf::File target, gguf::File::open(options.target));
    STRATA_TRY(check_not_input(draft, options.output));
    STRATA_TRY(check_not_input(target, options.output));
    STRATA_ASSIGN(const dflash::Config config, dflash::config_from_gguf(draft));
    STRATA_TRY(dflash::check_tensors(config, draft));
    STRATA_ASSIGN(const model::Config model, model::config_from_gguf(target));
    STRATA_TRY(dflash::check_target(config, model));
    STRATA_ASSIGN(const auto tokens,
                  sorted_vocabulary(options.vocabulary, config.vocabulary, config.candidates));
    STRATA_ASSIGN(const gguf::Tensor* embedding, find_embedding(target, model));
    STRATA_ASSIGN(const Head head, find_head(target, model));
    Contents contents{own_tensors(draft), HeadRows(head, options.type, tokens),
                      std::string(dflash::kHeadName), std::string(dflash::kMapName)};
    contents.copied.push_back(embedding);
    STRATA_TRY(contents.head.check_type());
    gguf::Writer writer;
    STRATA_TRY(set_keys(draft, target, writer));
    return write(options, contents, writer);
}

Status add_mtp_head(const DraftHeadOptions& options) {
    STRATA_ASSIGN(const gguf::File file, gguf::File::open(options.draft));
    STRATA_ASSIGN(const gguf::File target, gguf::File::open(options.target));
    STRATA_TRY(check_not_input(file, options.output));
    STRATA_TRY(check_not_input(target, options.output));
    STRATA_ASSIGN(const model::Config model, model::config_from_gguf(target));
    STRATA_ASSIGN(const model::Config layer, model::mtp_layer_from_gguf(file, model));
    const auto missing = model::missing_mtp_tensors(layer, file);
    if (!missing.empty()) return STRATA_ERROR(quote(file.path()), ": ", missing.front());
    STRATA_ASSIGN(const auto tokens, sorted_vocabulary(options.vocabulary, model.vocabulary, 1));
    STRATA_ASSIGN(const Head head, find_head(target, model));
    const std::string block = model::block_name(layer.layers, "");
    STRATA_ASSIGN(auto own, layer_tensors(file, block));
    Contents contents{std::move(own), HeadRows(head, options.type, tokens),
                      concat(block, model::kMtpHeadName), concat(block, model::kMtpMapName)};
    STRATA_TRY(contents.head.check_type());
    gguf::Writer writer;
    STRATA_TRY(set_keys(file, target, writer));
    return write(options, contents, writer);
}

}  // namespace strata::convert
