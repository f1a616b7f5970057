#include "tests/spec/draft_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "convert/convert.h"
#include "gguf/writer.h"

namespace strata::test {
namespace {

template <typename T>
T must(Result<T> result) {
    if (!result.ok()) {
        std::fprintf(stderr, "%s\n", result.error().message.c_str());
        std::abort();
    }
    return std::move(result).value();
}

void convert(const std::string& from, const std::string& to) {
    convert::ConvertOptions options;
    options.directory = from;
    options.output = to;
    options.types.type = quant::Type::bf16;
    must(convert::convert_checkpoint(options));
}

}  // namespace

DraftFile DraftFile::load(const std::string& path) {
    const gguf::File file = must(gguf::File::open(path));
    DraftFile draft;
    draft.metadata.assign(file.metadata().begin(), file.metadata().end());
    for (const gguf::Tensor& t : file.tensors()) {
        draft.tensors.push_back(
            {t.name, t.type, t.shape,
             std::string(reinterpret_cast<const char*>(t.data.data()), t.data.size())});
    }
    return draft;
}

void DraftFile::write(const std::string& path) const {
    gguf::Writer writer;
    for (const auto& [key, value] : metadata) writer.set(key, value);
    for (const Tensor& t : tensors) must(writer.add_tensor(t.name, t.type, t.shape));
    must(writer.begin(path));
    for (const Tensor& t : tensors) {
        must(writer.write_tensor_data(std::as_bytes(std::span(t.bytes))));
    }
    must(writer.commit());
}

void DraftFile::set(const std::string& key, gguf::Value value) {
    erase(key);
    metadata.emplace_back(key, std::move(value));
}

void DraftFile::erase(const std::string& key) {
    std::erase_if(metadata, [&](const auto& entry) { return entry.first == key; });
}

DraftFile::Tensor& DraftFile::at(const std::string& name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const Tensor& t) { return t.name == name; });
    if (found == tensors.end()) std::abort();
    return *found;
}

GoldenDraft::GoldenDraft(const std::string& name, const Backend* backend)
    : target_path_(directory_ / "target.gguf"),
      draft_path_(directory_ / "draft.gguf"),
      golden_(Golden::load(name)),
      own_(must(make_cpu_backend({2}))),
      backend_(backend == nullptr ? own_ : *backend) {
    convert(golden_directory(name) + "/target", target_path_);
    convert(golden_directory(name) + "/draft", draft_path_);
    target_ = must(model::Target::load(must(gguf::File::open(target_path_)), *backend_.device,
                                       backend_.ops, 32));
}

GoldenDraft& GoldenDraft::of(const std::string& name) {
    static std::map<std::string, std::unique_ptr<GoldenDraft>> all;
    auto& one = all[name];
    if (one == nullptr) one = std::make_unique<GoldenDraft>(name);
    return *one;
}

Result<std::unique_ptr<dflash::BlockModel>> GoldenDraft::try_drafter(const std::string& path,
                                                                     std::int64_t rows_max) {
    return dflash::BlockModel::load(must(gguf::File::open(path)), *target_, *backend_.device,
                                    backend_.ops, rows_max);
}

std::unique_ptr<dflash::BlockModel> GoldenDraft::drafter(const std::string& path,
                                                         std::int64_t rows_max) {
    return must(try_drafter(path, rows_max));
}

Result<std::unique_ptr<dflash::BlockModel>> GoldenDraft::changed(
    const std::function<void(DraftFile&)>& change) {
    DraftFile file = DraftFile::load(draft_path_);
    change(file);
    const std::string path = directory_ / "changed.gguf";
    file.write(path);
    return try_drafter(path);
}

std::vector<float> GoldenDraft::features(const dflash::Config& config, std::int64_t rows) const {
    const auto means = golden_.floats("long.hc_mean");
    const std::int64_t all = golden_.shape("long.hc_mean")[1];
    std::vector<float> features;
    for (std::int64_t t = 0; t < rows; ++t) {
        for (const std::int64_t layer : config.target_layers) {
            const auto row =
                means.subspan(static_cast<std::size_t>((layer * all + t) * config.hidden),
                              static_cast<std::size_t>(config.hidden));
            features.insert(features.end(), row.begin(), row.end());
        }
    }
    return features;
}

}  // namespace strata::test
