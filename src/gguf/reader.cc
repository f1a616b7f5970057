#include "gguf/reader.h"

#include <optional>

#include "base/text.h"
#include "gguf/shard.h"
#include "gguf/split.h"

namespace strata::gguf {
namespace {

constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitNumber = "split.no";
constexpr std::string_view kSplitTensors = "split.tensors.count";
constexpr std::string_view kArchitecture = "general.architecture";

// An integer key of `shard`, `fallback` if there is none.
Result<std::uint64_t> shard_uint(const Shard& shard, std::string_view key, std::uint64_t fallback) {
    const Value* value = shard.contents.find(key);
    if (value == nullptr) return fallback;
    const auto number = value->as_uint();
    if (number) return *number;
    return STRATA_ERROR(quote(shard.file.path()), ": metadata key ", quote(key), " is ",
                        value->as_int() ? "negative" : "of type " + value->type_text(),
                        ", wanted an integer of 0 or more");
}

}  // namespace

// Opens every part of the set that a path belongs to and joins them.
class SetLoader {
  public:
    explicit SetLoader(const std::string& path) { file_.path_ = path; }

    Result<File> load();

  private:
    Status open_parts(Shard given);
    Status check_part(const Shard& part, std::uint64_t number) const;
    Status add(Shard part);
    Status join_index();

    File file_;
    std::uint64_t count_ = 1;
    std::uint64_t tensor_count_ = 0;
    std::optional<std::string> architecture_;
};

Result<File> SetLoader::load() {
    STRATA_ASSIGN(const std::string path, model_file(file_.path_));
    STRATA_ASSIGN(Shard given, read_shard(path));
    STRATA_ASSIGN(count_, shard_uint(given, kSplitCount, 1));
    if (count_ <= 1) {
        STRATA_TRY(add(std::move(given)));
    } else {
        STRATA_TRY(open_parts(std::move(given)));
    }
    STRATA_TRY(join_index());
    return std::move(file_);
}

Status SetLoader::open_parts(Shard given) {
    const std::string path = given.file.path();
    STRATA_ASSIGN(const std::uint64_t own, shard_uint(given, kSplitNumber, 0));
    if (count_ > kShardsMax || own >= count_) {
        return STRATA_ERROR(quote(path), " says that it is part ", own, " (from 0) of ", count_,
                            ", wanted a part below the count and at most ", kShardsMax, " parts");
    }
    const auto names = split_names(path);
    if (names.empty()) {
        return STRATA_ERROR(quote(path), " is one of ", count_,
                            " parts of a model, but is not named like one (name-00001-of-",
                            "00003.gguf), so the other parts cannot be found");
    }
    for (const SplitName& name : names) {
        if (name.count == count_ && name.number == own + 1) continue;
        return STRATA_ERROR(quote(path), " is named as part ", name.number, " of ", name.count,
                            " and says in its metadata that it is part ", own + 1, " of ", count_);
    }
    STRATA_ASSIGN(tensor_count_, shard_uint(given, kSplitTensors, 0));
    for (std::uint64_t number = 0; number < count_; ++number) {
        if (number == own) {
            STRATA_TRY(check_part(given, number));
            STRATA_TRY(add(std::move(given)));
            continue;
        }
        const auto part_file = find_part(names, number + 1);
        if (!part_file) {
            return STRATA_ERROR("part ", number + 1, " of ", count_, " of ", quote(path),
                                " is missing: there is no file ",
                                quote(part_path(names.front(), number + 1)));
        }
        STRATA_ASSIGN(Shard part, read_shard(*part_file));
        STRATA_TRY(check_part(part, number));
        STRATA_TRY(add(std::move(part)));
    }
    return Ok{};
}

// A part belongs to the set of the file that was given if it says so itself.
Status SetLoader::check_part(const Shard& part, std::uint64_t number) const {
    STRATA_ASSIGN(const std::uint64_t count, shard_uint(part, kSplitCount, 1));
    STRATA_ASSIGN(const std::uint64_t own, shard_uint(part, kSplitNumber, 0));
    STRATA_ASSIGN(const std::uint64_t tensors, shard_uint(part, kSplitTensors, 0));
    if (count != count_ || own != number || tensors != tensor_count_) {
        return STRATA_ERROR(quote(part.file.path()), " says that it is part ", own + 1, " of ",
                            count, " of a model with ", tensors, " tensors, wanted part ",
                            number + 1, " of ", count_, " of a model with ", tensor_count_,
                            " tensors");
    }
    return Ok{};
}

Status SetLoader::add(Shard part) {
    const std::string path = part.file.path();
    if (const Value* value = part.contents.find(kArchitecture)) {
        const std::string name(value->as_string().value_or(""));
        if (architecture_ && name != *architecture_) {
            return STRATA_ERROR(quote(path), " is of architecture ", quote(name),
                                ", and another part of the same set is of ", quote(*architecture_));
        }
        architecture_ = name;
    }
    if (file_.files_.empty()) file_.metadata_ = std::move(part.contents.metadata);
    for (Tensor& tensor : part.contents.tensors) {
        tensor.shard = file_.files_.size();
        file_.tensors_.push_back(std::move(tensor));
    }
    file_.paths_.push_back(path);
    file_.files_.push_back(std::move(part.file));
    return Ok{};
}

Status SetLoader::join_index() {
    file_.index();
    for (std::size_t i = 0; i < file_.tensors_.size(); ++i) {
        const Tensor& tensor = file_.tensors_[i];
        const std::size_t first = file_.tensor_index_.at(tensor.name);
        if (first == i) continue;
        return STRATA_ERROR(quote(file_.paths_[tensor.shard]), " holds the tensor ",
                            quote(tensor.name), ", which is already in ",
                            quote(file_.paths_[file_.tensors_[first].shard]),
                            "; they are not parts of one set");
    }
    if (count_ > 1 && tensor_count_ != 0 && file_.tensors_.size() != tensor_count_) {
        return STRATA_ERROR("the ", count_, " parts of ", quote(file_.path_), " hold ",
                            file_.tensors_.size(), " tensors, and their metadata says ",
                            tensor_count_, "; they are not parts of one set");
    }
    return Ok{};
}

Result<File> File::open(const std::string& path) { return SetLoader(path).load(); }

void File::index() {
    for (std::size_t i = 0; i < metadata_.size(); ++i) key_index_.emplace(metadata_[i].first, i);
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensor_index_.emplace(tensors_[i].name, i);
}

const Value* File::find(std::string_view key) const {
    const auto found = key_index_.find(key);
    return found == key_index_.end() ? nullptr : &metadata_[found->second].second;
}

const Tensor* File::find_tensor(std::string_view name) const {
    const auto found = tensor_index_.find(name);
    return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

std::uint64_t File::total_bytes() const {
    std::uint64_t total = 0;
    for (const MappedFile& file : files_) total += file.bytes().size();
    return total;
}

std::uint64_t Tensor::elements() const {
    std::uint64_t product = 1;
    for (const std::uint64_t size : shape) product *= size;
    return product;
}

}  // namespace strata::gguf
