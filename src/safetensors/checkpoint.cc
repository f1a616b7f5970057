#include "safetensors/checkpoint.h"

#include <filesystem>
#include <set>
#include <system_error>

#include "base/text.h"
#include "safetensors/header.h"
#include "safetensors/json.h"

namespace strata::safetensors {
namespace {

constexpr std::string_view kWholeFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

std::string join(const std::string& directory, std::string_view name) {
    return (std::filesystem::path(directory) / name).string();
}

bool exists(const std::string& path) {
    std::error_code error;
    return std::filesystem::exists(path, error);
}

// A shard lies in the directory itself: no separators, no "." or "..".
bool is_plain_name(const std::string& name) {
    return !name.empty() && name != "." && name != ".." &&
           name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& directory) {
    std::error_code error;
    if (!std::filesystem::is_directory(directory, error)) {
        return STRATA_ERROR(quote(directory), " is not a directory");
    }
    Checkpoint checkpoint;
    checkpoint.directory_ = directory;
    // Where both are there, the index says which files count.
    if (exists(join(directory, kIndexFile))) {
        STRATA_TRY(checkpoint.open_index());
    } else if (exists(join(directory, kWholeFile))) {
        STRATA_TRY(checkpoint.add_file(std::string(kWholeFile)));
        STRATA_TRY(checkpoint.index());
    } else {
        return STRATA_ERROR("the directory ", quote(directory), " holds neither ",
                            quote(kWholeFile), " nor ", quote(kIndexFile));
    }
    return checkpoint;
}

Status Checkpoint::open_index() {
    const std::string path = join(directory_, kIndexFile);
    STRATA_ASSIGN(const nlohmann::json root, read_json(path, kIndexBytesMax));
    const auto map = root.find("weight_map");
    if (!root.is_object() || map == root.end() || !map->is_object()) {
        return STRATA_ERROR(quote(path), " has no object 'weight_map'");
    }
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : map->items()) {
        const auto* name = shard.get_ptr<const std::string*>();
        if (name == nullptr || !is_plain_name(*name)) {
            return STRATA_ERROR(quote(path), ": the shard of tensor ", quote(tensor), " is ",
                                name ? quote(*name) : "no string",
                                ", wanted the name of a file in the same directory");
        }
        if (shards.insert(*name).second && !exists(join(directory_, *name))) {
            return STRATA_ERROR("the shard ", quote(join(directory_, *name)), " of tensor ",
                                quote(tensor), " is missing");
        }
    }
    for (const std::string& shard : shards) STRATA_TRY(add_file(shard));
    STRATA_TRY(index());
    for (const auto& [tensor, shard] : map->items()) {
        const Tensor* found = find(tensor);
        const std::string wanted = join(directory_, shard.get_ref<const std::string&>());
        if (found == nullptr || paths_[found->shard] != wanted) {
            return STRATA_ERROR(quote(path), " says that tensor ", quote(tensor), " is in ",
                                quote(wanted), ", which does not hold it");
        }
    }
    return Ok{};
}

Status Checkpoint::add_file(const std::string& name) {
    const std::string path = join(directory_, name);
    STRATA_ASSIGN(MappedFile file, MappedFile::open(path));
    STRATA_ASSIGN(std::vector<Tensor> tensors, parse_file(path, file.bytes()));
    for (Tensor& tensor : tensors) {
        tensor.shard = files_.size();
        tensors_.push_back(std::move(tensor));
    }
    paths_.push_back(path);
    files_.push_back(std::move(file));
    return Ok{};
}

Status Checkpoint::index() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const auto [first, added] = index_.emplace(tensors_[i].name, i);
        if (added) continue;
        return STRATA_ERROR(quote(paths_[tensors_[i].shard]), " holds the tensor ",
                            quote(tensors_[i].name), ", which is already in ",
                            quote(paths_[tensors_[first->second].shard]));
    }
    return Ok{};
}

const Tensor* Checkpoint::find(std::string_view name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace strata::safetensors
