#include "convert/inspect.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "model/config.h"
#include "model/tensors.h"
#include "spec/dflash/config.h"
#include "spec/dflash/tensors.h"

namespace strata::convert {
namespace {

using model::TensorClass;

constexpr std::array<std::string_view, 13> kClassNames = {"embedding",
                                                          "head",
                                                          "routed experts",
                                                          "shared experts",
                                                          "hyper-connections",
                                                          "delta nets",
                                                          "attention",
                                                          "routers",
                                                          "n-gram table",
                                                          "n-gram block",
                                                          "MTP layer",
                                                          "norms and other vectors",
                                                          "other"};
constexpr std::size_t kOther = kClassNames.size() - 1;
constexpr std::size_t kMtp = kClassNames.size() - 3;

std::size_t row_of(TensorClass c) {
    switch (c) {
        case TensorClass::embedding:
            return 0;
        case TensorClass::head:
            return 1;
        case TensorClass::expert_gate:
        case TensorClass::expert_down:
            return 2;
        case TensorClass::shared_expert:
            return 3;
        case TensorClass::hyper_connection:
            return 4;
        case TensorClass::delta_net:
            return 5;
        case TensorClass::attention:
            return 6;
        case TensorClass::router:
            return 7;
        case TensorClass::ngram_table:
            return 8;
        case TensorClass::ngram:
            return 9;
        case TensorClass::mtp:
            return kMtp;
        case TensorClass::small:
            return kClassNames.size() - 2;
    }
    return kOther;
}

// By the parts of names that GGUF files of all architectures share.
std::size_t row_by_name(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, TensorClass>, 11> kParts = {{
        {"per_layer_token_embd", TensorClass::ngram_table},
        {"token_embd.weight", TensorClass::embedding},
        {"norm", TensorClass::small},
        {"bias", TensorClass::small},
        {"_shexp", TensorClass::shared_expert},
        {"_exps", TensorClass::expert_gate},
        {"ffn_gate_inp", TensorClass::router},
        {"ssm_", TensorClass::delta_net},
        {"attn_", TensorClass::attention},
        {"nextn.", TensorClass::mtp},
        {"hc_", TensorClass::hyper_connection},
    }};
    if (name == "output.weight") return row_of(TensorClass::head);
    for (const auto& [part, c] : kParts) {
        if (name.find(part) != std::string_view::npos) return row_of(c);
    }
    return kOther;
}

using Rows = std::unordered_map<std::string, std::size_t>;

Rows rows_of_model(const model::Config& config) {
    Rows rows;
    for (const model::TensorSpec& spec : model::tensor_list(config)) {
        const std::size_t row = spec.mtp ? kMtp : row_of(spec.tensor_class);
        rows.emplace(spec.name, row);
        if (spec.presence == model::Presence::separate_or_fused) {
            rows.emplace(model::block_name(spec.block, model::kFusedExpertsName), row);
        }
    }
    return rows;
}

std::vector<ClassSize> sum_classes(const gguf::File& file, const std::optional<Rows>& rows) {
    std::array<ClassSize, kClassNames.size()> sums;
    for (const gguf::Tensor& tensor : file.tensors()) {
        std::size_t row = kOther;
        if (!rows) {
            row = row_by_name(tensor.name);
        } else if (const auto found = rows->find(tensor.name); found != rows->end()) {
            row = found->second;
        }
        ++sums[row].tensors;
        sums[row].elements += tensor.elements();
        sums[row].bytes += tensor.data.size();
        const std::string type(quant::info(tensor.type).name);
        auto& types = sums[row].types;
        if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    }
    std::vector<ClassSize> classes;
    for (std::size_t row = 0; row < sums.size(); ++row) {
        sums[row].name = kClassNames[row];
        if (sums[row].tensors > 0) classes.push_back(std::move(sums[row]));
    }
    return classes;
}

std::vector<std::string> optional_parts(const gguf::File& file,
                                        const std::optional<model::Config>& config) {
    std::vector<std::string> without;
    if (file.find("tokenizer.ggml.tokens") == nullptr) without.push_back("a tokenizer");
    if (file.find("tokenizer.chat_template") == nullptr) without.push_back("a chat template");
    if (file.find("tokenizer.ggml.eos_token_id") == nullptr) without.push_back("an end token");
    if (config && config->mtp_layers == 0) without.push_back("an MTP layer");
    if (config && !config->ngram.present()) without.push_back("an n-gram table");
    if (config && file.find_tensor("output.weight") == nullptr) {
        without.push_back("an output head of its own (the embedding serves)");
    }
    return without;
}

// One sentence at most: a draft's contract is checked up to what it first finds.
std::vector<std::string> draft_lacks(const gguf::File& file) {
    const auto config = dflash::config_from_gguf(file);
    if (!config.ok()) return {config.error().message};
    const Status status = dflash::check_tensors(*config, file);
    return status.ok() ? std::vector<std::string>{} : std::vector{status.error().message};
}

}  // namespace

Result<Inspection> inspect(const std::string& path) {
    STRATA_ASSIGN(gguf::File file, gguf::File::open(path));
    Inspection inspection{std::move(file), "", {}, std::nullopt, {}};
    const gguf::File& opened = inspection.file;
    if (const gguf::Value* value = opened.find("general.architecture")) {
        inspection.architecture = value->as_string().value_or("");
    }
    std::optional<model::Config> config;
    std::optional<Rows> rows;
    if (inspection.architecture == "qwen4exp") {
        Result<model::Config> read = model::config_from_gguf(opened);
        if (read.ok()) {
            config = *read;
            rows = rows_of_model(*config);
            inspection.lacks = model::missing_tensors(*config, opened);
        } else {
            inspection.lacks = {read.error().message};
        }
    } else if (inspection.architecture == "dflash") {
        inspection.lacks = draft_lacks(opened);
    }
    inspection.classes = sum_classes(opened, rows);
    inspection.without = optional_parts(opened, config);
    return inspection;
}

}  // namespace strata::convert
