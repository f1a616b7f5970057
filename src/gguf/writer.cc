#include "gguf/writer.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/checked.h"
#include "base/text.h"
#include "gguf/reader.h"

namespace strata::gguf {
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kAlignment = kAlignmentDefault;

template <typename T>
void append(std::string& out, T number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof(T));
}

void append_text(std::string& out, std::string_view text) {
    append(out, std::uint64_t{text.size()});
    out += text;
}

void append_value(std::string& out, const Value& value) {
    append(out, static_cast<std::uint32_t>(value.type()));
    if (value.type() == ValueType::array) {
        append(out, static_cast<std::uint32_t>(value.element_type()));
        append(out, value.count());
    } else if (value.type() == ValueType::string) {
        append(out, std::uint64_t{value.payload().size()});
    }
    out += value.payload();
}

std::uint64_t padding(std::uint64_t bytes) {
    return (kAlignment - bytes % kAlignment) % kAlignment;
}

}  // namespace

void Writer::set(std::string_view key, Value value) {
    STRATA_CHECK(!out_);
    const auto same = [&](const auto& pair) { return pair.first == key; };
    const auto found = std::ranges::find_if(metadata_, same);
    if (found != metadata_.end()) {
        found->second = std::move(value);
    } else {
        metadata_.emplace_back(key, std::move(value));
    }
}

Status Writer::add_tensor(std::string_view name, quant::Type type,
                          std::span<const std::uint64_t> shape) {
    STRATA_CHECK(!out_);
    if (name.empty() || name.size() > kTensorNameBytesMax) {
        return STRATA_ERROR("the tensor name ", quote(name), " has ", name.size(),
                            " bytes, wanted 1 to ", kTensorNameBytesMax);
    }
    if (!names_.emplace(name).second) {
        return STRATA_ERROR("the tensor ", quote(name), " is declared twice");
    }
    if (shape.empty() || shape.size() > kDimensionsMax || std::ranges::count(shape, 0u) != 0) {
        return STRATA_ERROR("tensor ", quote(name), " has the shape ", shape_text(shape),
                            ", wanted 1 to ", kDimensionsMax, " dimensions, none of them 0");
    }
    std::optional<std::uint64_t> rows = 1;
    for (const std::uint64_t size : shape.subspan(1)) rows = rows ? checked_mul(*rows, size) : rows;
    const auto row = quant::row_bytes(type, shape[0]);
    if (!row) return STRATA_ERROR("tensor ", quote(name), ": ", row.error().message);
    const auto values = rows ? checked_mul(*rows, shape[0]) : rows;
    const auto bytes = values ? checked_mul(*rows, *row) : values;
    constexpr std::uint64_t kMax{std::numeric_limits<std::int64_t>::max()};
    if (!bytes || *values > kMax || *bytes > kMax - std::min(kMax, data_bytes_ + kAlignment)) {
        return STRATA_ERROR("tensor ", quote(name), " of shape ", shape_text(shape),
                            " is larger than a file can be");
    }
    tensors_.push_back({std::string(name), type, {shape.begin(), shape.end()}, *bytes});
    data_bytes_ += *bytes + padding(*bytes);
    return Ok{};
}

Status Writer::check_keys() const {
    for (const auto& [key, value] : metadata_) {
        if (key.empty() || key.size() > kKeyBytesMax) {
            return STRATA_ERROR("the metadata key ", quote(key), " has ", key.size(),
                                " bytes, wanted 1 to ", kKeyBytesMax);
        }
        if (key == "general.alignment" && value.as_uint() != kAlignment) {
            return STRATA_ERROR("metadata key 'general.alignment' must be ", kAlignment,
                                " in a file that this build writes");
        }
    }
    return Ok{};
}

std::string Writer::header() const {
    std::string out = "GGUF";
    append(out, kVersion);
    append(out, std::uint64_t{tensors_.size()});
    append(out, std::uint64_t{metadata_.size()});
    for (const auto& [key, value] : metadata_) {
        append_text(out, key);
        append_value(out, value);
    }
    std::uint64_t offset = 0;
    for (const Declared& tensor : tensors_) {
        append_text(out, tensor.name);
        append(out, static_cast<std::uint32_t>(tensor.shape.size()));
        for (const std::uint64_t size : tensor.shape) append(out, size);
        append(out, static_cast<std::uint32_t>(tensor.type));
        append(out, offset);
        offset += tensor.bytes + padding(tensor.bytes);
    }
    out.append(padding(out.size()), '\0');
    return out;
}

Status Writer::begin(const std::string& path) {
    STRATA_CHECK(!out_);
    STRATA_TRY(check_keys());
    const std::string all_but_data = header();
    STRATA_ASSIGN(out_, OutputFile::create(path, all_but_data.size() + data_bytes_));
    return out_->write(all_but_data);
}

Status Writer::write_tensor_data(std::span<const std::byte> bytes) {
    STRATA_CHECK(out_);
    if (bytes.empty()) return Ok{};
    if (current_ == tensors_.size()) {
        return STRATA_ERROR(bytes.size(), " bytes of data follow the last tensor");
    }
    const Declared& tensor = tensors_[current_];
    if (bytes.size() > tensor.bytes - current_done_) {
        return STRATA_ERROR("tensor ", quote(tensor.name), " was declared with ", tensor.bytes,
                            " bytes and has at least ", current_done_ + bytes.size());
    }
    STRATA_TRY(out_->write(bytes));
    current_done_ += bytes.size();
    if (current_done_ < tensor.bytes) return Ok{};
    ++current_;
    current_done_ = 0;
    return out_->write(std::string(padding(tensor.bytes), '\0'));
}

Status Writer::commit() {
    STRATA_CHECK(out_);
    if (current_ != tensors_.size()) {
        const Declared& tensor = tensors_[current_];
        return STRATA_ERROR("tensor ", quote(tensor.name), " was declared with ", tensor.bytes,
                            " bytes and has ", current_done_);
    }
    return out_->commit();
}

}  // namespace strata::gguf
