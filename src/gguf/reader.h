// Reading GGUF v3, one file or a split set, as if it were one file. Every count, size and offset is
// checked before it is used; no input makes this crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "gguf/value.h"
#include "quant/type.h"

namespace strata::gguf {

inline constexpr int kDimensionsMax = 4;
inline constexpr std::uint64_t kKeyBytesMax = 65535;  // the format's own limit
inline constexpr std::uint64_t kTensorNameBytesMax = 256;
inline constexpr std::uint64_t kAlignmentDefault = 32;
inline constexpr std::uint64_t kAlignmentMax = std::uint64_t{1} << 30;
// Of metadata and tensor descriptions together; what is read of them is copied to memory.
inline constexpr std::uint64_t kHeaderBytesMax = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kEntriesMax = 1'000'000;  // keys, and tensors, of one file
inline constexpr std::uint64_t kShardsMax = 99999;       // file names have five digits

struct Tensor {
    std::string name;
    quant::Type type = quant::Type::f32;
    std::vector<std::uint64_t> shape;  // GGUF's order: shape[0] is the row width; 1 to 4, none 0
    std::span<const std::byte> data;   // in the mapped file
    std::size_t shard = 0;             // of File::paths()
    std::uint64_t offset = 0;          // of the data in that file

    // Values; fits int64.
    std::uint64_t elements() const;
    // shape[i], 1 beyond the last dimension.
    std::uint64_t dimension(std::size_t i) const { return i < shape.size() ? shape[i] : 1; }
};

// Owns the mappings; the data of its tensors is valid while it lives, moved or not.
class File {
  public:
    // `path` is a file, any part of a split set (name-00002-of-00003.gguf), or a directory that
    // holds one such file or set. The other parts are looked for beside the path as given, then
    // beside what it links to. Errors: missing part, part of another set, malformed file.
    static Result<File> open(const std::string& path);

    // Null if there is none.
    const Value* find(std::string_view key) const;
    const Tensor* find_tensor(std::string_view name) const;

    // In the file's order; a split set has the metadata of its first part and all tensors.
    std::span<const std::pair<std::string, Value>> metadata() const { return metadata_; }
    std::span<const Tensor> tensors() const { return tensors_; }
    // As it was given to open().
    const std::string& path() const { return path_; }
    // Of the parts, in order.
    std::span<const std::string> paths() const { return paths_; }
    // Of all parts together.
    std::uint64_t total_bytes() const;

  private:
    friend class SetLoader;
    File() = default;
    void index();

    std::string path_;
    std::vector<std::string> paths_;
    std::vector<MappedFile> files_;
    std::vector<std::pair<std::string, Value>> metadata_;
    std::vector<Tensor> tensors_;
    std::unordered_map<std::string_view, std::size_t> key_index_;
    std::unordered_map<std::string_view, std::size_t> tensor_index_;
};

// A key that must be there. Errors name file and key, and the type found if it is the wrong one.
// Strings are valid while the file lives.
Result<std::uint64_t> require_uint(const File& file, std::string_view key);
Result<std::int64_t> require_int(const File& file, std::string_view key);
Result<double> require_float(const File& file, std::string_view key);
Result<bool> require_bool(const File& file, std::string_view key);
Result<std::string_view> require_string(const File& file, std::string_view key);
Result<std::vector<std::uint64_t>> require_uints(const File& file, std::string_view key);
Result<std::vector<std::int64_t>> require_ints(const File& file, std::string_view key);
Result<std::vector<float>> require_floats(const File& file, std::string_view key);
Result<std::vector<std::string_view>> require_strings(const File& file, std::string_view key);

// A key that may be missing, but must be of the right type if it is there.
Result<std::uint64_t> uint_or(const File& file, std::string_view key, std::uint64_t fallback);
Result<double> float_or(const File& file, std::string_view key, double fallback);
Result<bool> bool_or(const File& file, std::string_view key, bool fallback);

// A tensor that must be there.
Result<const Tensor*> require_tensor(const File& file, std::string_view name);

}  // namespace strata::gguf
