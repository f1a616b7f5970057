#include "gguf/shard.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_set>

#include "base/checked.h"
#include "base/text.h"

namespace strata::gguf {
namespace {

constexpr std::uint32_t kVersion = 3;
// The fewest bytes that an entry takes: a length, one byte of name, a type and one byte of value;
// a length, one byte of name, one dimension and its count, a type, an offset.
constexpr std::uint64_t kPairBytesMin = 8 + 1 + 4 + 1;
constexpr std::uint64_t kTensorInfoBytesMin = 8 + 1 + 4 + 8 + 4 + 8;

// Why a tensor may have less room than its type and shape take: ends an error, maybe empty. There
// is a Q2_0 with a scale for every 128 values, which differs from that of 64 in its size alone.
std::string other_variant(const Tensor& tensor, std::uint64_t room) {
    constexpr std::uint64_t kGroup = 128;
    constexpr std::uint64_t kGroupBytes = 34;
    if (tensor.type != quant::Type::q2_0 || tensor.shape[0] % kGroup != 0) return {};
    if (tensor.elements() / kGroup * kGroupBytes > room) return {};
    return "; it may be Q2_0 with groups of 128 values, which has the same type number and is not "
           "read, wanted groups of 64";
}

class Parser {
  public:
    Parser(const std::string& path, std::string_view bytes) : path_(path), bytes_(bytes) {}

    // .
    Status parse(Contents& contents);

  private:
    Status read_start();
    Status read_pair(Contents& contents);
    Result<Value> read_value(const std::string& key);
    Result<Value> read_array(const std::string& key);
    Status skip_strings(const std::string& key, std::uint64_t count);
    Status read_alignment(const Contents& contents);
    Status read_tensor_info(Contents& contents);
    Result<std::vector<std::uint64_t>> read_shape(const std::string& name);
    Status place(Tensor& tensor, std::uint64_t data_start) const;
    Status check_overlaps(const Contents& contents) const;

    // All that follow move past what they return; `what` names it when the file ends before that.
    Result<std::string_view> take(std::uint64_t count, std::string_view what);
    template <typename T>
    Result<T> read(std::string_view what) {
        STRATA_ASSIGN(const std::string_view raw, take(sizeof(T), what));
        T number;
        std::memcpy(&number, raw.data(), sizeof(T));
        return number;
    }
    Result<std::string> read_name(std::uint64_t bytes_max, std::string_view what);

    std::uint64_t left() const { return bytes_.size() - at_; }

    const std::string& path_;
    std::string_view bytes_;
    std::size_t at_ = 0;
    std::uint64_t tensor_count_ = 0;
    std::uint64_t pair_count_ = 0;
    std::uint64_t alignment_ = kAlignmentDefault;
    std::unordered_set<std::string> names_;
};

Result<std::string_view> Parser::take(std::uint64_t count, std::string_view what) {
    if (count > left()) {
        return STRATA_ERROR(quote(path_), " is truncated or corrupt: it ends at byte ",
                            bytes_.size(), " inside ", what, ", which takes ", count,
                            " bytes from byte ", at_);
    }
    if (count > kHeaderBytesMax - at_) {
        return STRATA_ERROR(quote(path_), ": the header, read up to ", what, ", is longer than ",
                            kHeaderBytesMax, " bytes");
    }
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
}

Result<std::string> Parser::read_name(std::uint64_t bytes_max, std::string_view what) {
    STRATA_ASSIGN(const auto length, read<std::uint64_t>(what));
    if (length == 0 || length > bytes_max) {
        return STRATA_ERROR(quote(path_), " holds ", what, " of ", length, " bytes, wanted 1 to ",
                            bytes_max);
    }
    STRATA_ASSIGN(const std::string_view name, take(length, what));
    return std::string(name);
}

Status Parser::read_start() {
    if (bytes_.substr(0, 4) != "GGUF") {
        return STRATA_ERROR(quote(path_), " is not a GGUF file: its first bytes are not 'GGUF'");
    }
    at_ = 4;
    STRATA_ASSIGN(const auto version, read<std::uint32_t>("the version"));
    if (version != kVersion) {
        const bool swapped = version == __builtin_bswap32(kVersion);
        return STRATA_ERROR(
            quote(path_), " is GGUF ",
            swapped ? std::string("of big-endian byte order") : concat("version ", version),
            ", wanted version ", kVersion, ", little-endian");
    }
    STRATA_ASSIGN(tensor_count_, read<std::uint64_t>("the number of tensors"));
    STRATA_ASSIGN(pair_count_, read<std::uint64_t>("the number of metadata keys"));
    if (pair_count_ > left() / kPairBytesMin || tensor_count_ > left() / kTensorInfoBytesMin) {
        return STRATA_ERROR(quote(path_), " is truncated or corrupt: it declares ", pair_count_,
                            " metadata keys and ", tensor_count_, " tensors, more than its ",
                            bytes_.size(), " bytes can hold");
    }
    if (pair_count_ > kEntriesMax || tensor_count_ > kEntriesMax) {
        return STRATA_ERROR(quote(path_), " declares ", pair_count_, " metadata keys and ",
                            tensor_count_, " tensors, wanted at most ", kEntriesMax, " of each");
    }
    return Ok{};
}

Status Parser::read_pair(Contents& contents) {
    STRATA_ASSIGN(std::string key, read_name(kKeyBytesMax, "a metadata key"));
    if (!names_.insert(key).second) {
        return STRATA_ERROR(quote(path_), " has the metadata key ", quote(key), " twice");
    }
    STRATA_ASSIGN(Value value, read_value(key));
    contents.metadata.emplace_back(std::move(key), std::move(value));
    return Ok{};
}

Result<Value> Parser::read_value(const std::string& key) {
    const std::string what = concat("the value of metadata key ", quote(key));
    STRATA_ASSIGN(const auto number, read<std::uint32_t>(what));
    const auto type = static_cast<ValueType>(number);
    if (type == ValueType::array) return read_array(key);
    if (type == ValueType::string) {
        STRATA_ASSIGN(const auto length, read<std::uint64_t>(what));
        STRATA_ASSIGN(const std::string_view text, take(length, what));
        return Value::string(text);
    }
    if (scalar_bytes(type) == 0) {
        return STRATA_ERROR(quote(path_), ": metadata key ", quote(key), " is of type ", number,
                            ", wanted 0 to 12");
    }
    STRATA_ASSIGN(const std::string_view payload, take(scalar_bytes(type), what));
    if (type == ValueType::boolean &&
        payload.find_first_not_of(std::string_view("\0\1", 2)) != std::string_view::npos) {
        return STRATA_ERROR(quote(path_), ": metadata key ", quote(key),
                            " is a bool that is neither 0 nor 1");
    }
    return Value::encoded(type, type, 1, std::string(payload));
}

Result<Value> Parser::read_array(const std::string& key) {
    const std::string what = concat("the array of metadata key ", quote(key));
    STRATA_ASSIGN(const auto number, read<std::uint32_t>(what));
    STRATA_ASSIGN(const auto count, read<std::uint64_t>(what));
    const auto element = static_cast<ValueType>(number);
    const std::size_t start = at_;
    if (element == ValueType::string) {
        STRATA_TRY(skip_strings(key, count));
    } else {
        const std::uint64_t width = scalar_bytes(element);
        if (width == 0) {
            return STRATA_ERROR(quote(path_), ": metadata key ", quote(key),
                                " is an array of elements of type ", number,
                                ", wanted numbers, bools or strings");
        }
        const auto size = checked_mul(count, width);
        STRATA_TRY(take(size.value_or(std::numeric_limits<std::uint64_t>::max()), what));
    }
    const std::string_view payload = bytes_.substr(start, at_ - start);
    if (element == ValueType::boolean &&
        payload.find_first_not_of(std::string_view("\0\1", 2)) != std::string_view::npos) {
        return STRATA_ERROR(quote(path_), ": metadata key ", quote(key),
                            " has a bool that is neither 0 nor 1");
    }
    return Value::encoded(ValueType::array, element, count, std::string(payload));
}

Status Parser::skip_strings(const std::string& key, std::uint64_t count) {
    // One description for the whole array: building one a string would cost more than reading it.
    const std::string what = concat("a string of metadata key ", quote(key));
    for (std::uint64_t i = 0; i < count; ++i) {
        STRATA_ASSIGN(const auto length, read<std::uint64_t>(what));
        STRATA_TRY(take(length, what));
    }
    return Ok{};
}

Status Parser::read_alignment(const Contents& contents) {
    const Value* value = contents.find("general.alignment");
    if (value == nullptr) return Ok{};
    const auto number = value->as_uint();
    if (!number) {
        return STRATA_ERROR(quote(path_), ": metadata key 'general.alignment' is ",
                            value->as_int() ? concat(*value->as_int()) : value->type_text(),
                            ", wanted a positive integer");
    }
    if (!std::has_single_bit(*number) || *number > kAlignmentMax) {
        return STRATA_ERROR(quote(path_), ": metadata key 'general.alignment' is ", *number,
                            ", wanted a power of two up to ", kAlignmentMax);
    }
    alignment_ = *number;
    return Ok{};
}

Result<std::vector<std::uint64_t>> Parser::read_shape(const std::string& name) {
    const std::string what = concat("the shape of tensor ", quote(name));
    STRATA_ASSIGN(const auto dimensions, read<std::uint32_t>(what));
    if (dimensions == 0 || dimensions > kDimensionsMax) {
        return STRATA_ERROR(quote(path_), ": tensor ", quote(name), " has ", dimensions,
                            " dimensions, wanted 1 to ", kDimensionsMax);
    }
    std::vector<std::uint64_t> shape;
    std::optional<std::uint64_t> elements = 1;
    for (std::uint32_t i = 0; i < dimensions; ++i) {
        STRATA_ASSIGN(const auto size, read<std::uint64_t>(what));
        if (size == 0) {
            return STRATA_ERROR(quote(path_), ": dimension ", i, " of tensor ", quote(name),
                                " is 0");
        }
        if (elements) elements = checked_mul(*elements, size);
        shape.push_back(size);
    }
    if (!elements || *elements > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
        return STRATA_ERROR(quote(path_), ": tensor ", quote(name), " of shape ", shape_text(shape),
                            " has more values than 63 bits can count");
    }
    return shape;
}

Status Parser::read_tensor_info(Contents& contents) {
    Tensor tensor;
    STRATA_ASSIGN(tensor.name, read_name(kTensorNameBytesMax, "a tensor name"));
    if (!names_.insert(tensor.name).second) {
        return STRATA_ERROR(quote(path_), " has the tensor ", quote(tensor.name), " twice");
    }
    STRATA_ASSIGN(tensor.shape, read_shape(tensor.name));
    STRATA_ASSIGN(const auto id, read<std::uint32_t>("the type of a tensor"));
    const quant::TypeInfo* format = quant::find_type(id);
    if (format == nullptr) {
        return STRATA_ERROR(quote(path_), ": tensor ", quote(tensor.name), " is of type ",
                            quant::type_name(id), ", which this build cannot read; it reads ",
                            quant::readable_types());
    }
    tensor.type = format->type;
    STRATA_ASSIGN(tensor.offset, read<std::uint64_t>("the offset of a tensor"));
    contents.tensors.push_back(std::move(tensor));
    return Ok{};
}

Status Parser::place(Tensor& tensor, std::uint64_t data_start) const {
    const auto row = quant::row_bytes(tensor.type, tensor.shape[0]);
    if (!row) {
        return STRATA_ERROR(quote(path_), ": tensor ", quote(tensor.name), ": ",
                            row.error().message);
    }
    if (tensor.offset % alignment_ != 0) {
        return STRATA_ERROR(quote(path_), ": tensor ", quote(tensor.name), " lies at offset ",
                            tensor.offset, ", wanted a multiple of the alignment ", alignment_);
    }
    const auto size = checked_mul(*row, tensor.elements() / tensor.shape[0]);
    const auto start = checked_add(data_start, tensor.offset);
    const auto end = size && start ? checked_add(*start, *size) : std::nullopt;
    if (!end || *end > bytes_.size()) {
        return STRATA_ERROR(
            quote(path_), " is truncated or corrupt: tensor ", quote(tensor.name), " of shape ",
            shape_text(tensor.shape), " and type ", quant::info(tensor.type).name, " at offset ",
            tensor.offset, " of the data, which begins at byte ", data_start,
            ", reaches beyond the file's ", bytes_.size(), " bytes",
            end ? other_variant(tensor,
                                bytes_.size() - std::min<std::uint64_t>(bytes_.size(), *start))
                : std::string());
    }
    tensor.offset = *start;
    tensor.data = std::as_bytes(std::span(bytes_.substr(*start, *size)));
    return Ok{};
}

// Also what tells a type number of two layouts from the other one: data that is too short for it.
Status Parser::check_overlaps(const Contents& contents) const {
    std::vector<const Tensor*> in_order;
    for (const Tensor& tensor : contents.tensors) in_order.push_back(&tensor);
    std::ranges::stable_sort(in_order, {}, &Tensor::offset);
    for (std::size_t i = 1; i < in_order.size(); ++i) {
        const Tensor& tensor = *in_order[i - 1];
        const Tensor& next = *in_order[i];
        const std::uint64_t room = next.offset - tensor.offset;
        if (tensor.data.size() <= room) continue;
        return STRATA_ERROR(quote(path_), ": tensor ", quote(tensor.name), " of shape ",
                            shape_text(tensor.shape), " and type ", quant::info(tensor.type).name,
                            " takes ", tensor.data.size(), " bytes, and tensor ", quote(next.name),
                            " begins after ", room, " of them", other_variant(tensor, room));
    }
    return Ok{};
}

Status Parser::parse(Contents& contents) {
    STRATA_TRY(read_start());
    for (std::uint64_t i = 0; i < pair_count_; ++i) STRATA_TRY(read_pair(contents));
    STRATA_TRY(read_alignment(contents));
    names_.clear();
    for (std::uint64_t i = 0; i < tensor_count_; ++i) STRATA_TRY(read_tensor_info(contents));
    const auto data_start = checked_align(at_, alignment_);
    STRATA_CHECK(data_start.has_value());  // a file's size is far below 2^63
    for (Tensor& tensor : contents.tensors) STRATA_TRY(place(tensor, *data_start));
    return check_overlaps(contents);
}

}  // namespace

const Value* Contents::find(std::string_view key) const {
    for (const auto& [name, value] : metadata) {
        if (name == key) return &value;
    }
    return nullptr;
}

Result<Contents> parse_contents(const std::string& path, std::span<const std::byte> bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    Contents contents;
    STRATA_TRY(Parser(path, text).parse(contents));
    return contents;
}

Result<Shard> read_shard(const std::string& path) {
    STRATA_ASSIGN(MappedFile file, MappedFile::open(path));
    STRATA_ASSIGN(Contents contents, parse_contents(path, file.bytes()));
    return Shard{std::move(file), std::move(contents)};
}

}  // namespace strata::gguf
