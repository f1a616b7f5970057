#include "gguf/split.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <system_error>

#include "base/text.h"

namespace strata::gguf {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".gguf";
constexpr std::string_view kOf = "-of-";
constexpr std::size_t kDigits = 5;

std::optional<std::uint64_t> parse_digits(std::string_view digits) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
    if (error != std::errc() || end != digits.end()) return std::nullopt;
    return number;
}

std::string five_digits(std::uint64_t number) {
    std::string digits = std::to_string(number);
    if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
    return digits;
}

}  // namespace

std::optional<SplitName> parse_split_name(std::string_view path) {
    constexpr std::size_t kTail = 1 + kDigits + kOf.size() + kDigits + kExtension.size();
    if (path.size() < kTail || !path.ends_with(kExtension)) return std::nullopt;
    const std::string_view tail = path.substr(path.size() - kTail);
    if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
    const auto number = parse_digits(tail.substr(1, kDigits));
    const auto count = parse_digits(tail.substr(1 + kDigits + kOf.size(), kDigits));
    if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
    return SplitName{std::string(path.substr(0, path.size() - kTail)), *number, *count};
}

std::string part_path(const SplitName& name, std::uint64_t number) {
    return concat(name.prefix, '-', five_digits(number), kOf, five_digits(name.count), kExtension);
}

Result<std::string> model_file(const std::string& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) return path;
    fs::directory_iterator entries(path, error);
    // One entry a model: its name without what tells the parts apart, and its first file.
    std::map<std::string, std::string> models;
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
        const std::string name = entries->path().filename().string();
        if (!name.ends_with(kExtension)) continue;
        const auto split = parse_split_name(name);
        const std::string model = split ? part_path(*split, 0) : name;
        const auto [found, added] = models.try_emplace(model, name);
        if (!added) found->second = std::min(found->second, name);
    }
    if (error) {
        return STRATA_ERROR("cannot read the directory ", quote(path), ": ", error.message());
    }
    if (models.empty()) {
        return STRATA_ERROR("the directory ", quote(path), " holds no file named *", kExtension);
    }
    if (models.size() > 1) {
        return STRATA_ERROR("the directory ", quote(path), " holds ", models.size(),
                            " models, among them ", quote(models.begin()->second), " and ",
                            quote(std::next(models.begin())->second), ", wanted one; name a file");
    }
    return (fs::path(path) / models.begin()->second).string();
}

std::vector<SplitName> split_names(const std::string& path) {
    std::vector<SplitName> names;
    if (auto name = parse_split_name(path)) names.push_back(std::move(*name));
    std::error_code error;
    if (fs::is_symlink(path, error)) {
        const std::string target = fs::canonical(path, error).string();
        if (auto name = parse_split_name(target)) names.push_back(std::move(*name));
    }
    return names;
}

std::optional<std::string> find_part(const std::vector<SplitName>& names, std::uint64_t number) {
    for (const SplitName& name : names) {
        std::string path = part_path(name, number);
        std::error_code error;
        if (fs::exists(path, error)) return path;
    }
    return std::nullopt;
}

}  // namespace strata::gguf
