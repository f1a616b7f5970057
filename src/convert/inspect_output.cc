#include <algorithm>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.h"
#include "convert/inspect.h"

namespace strata::convert {
namespace {

using gguf::Value;
using gguf::ValueType;
using nlohmann::ordered_json;

constexpr std::uint64_t kListMax = 64;      // of a list that is shown whole
constexpr std::size_t kFirst = 8;           // of a longer one
constexpr std::size_t kTextBytesMax = 120;  // of a value in the text

// JSON has no NaN and no infinity.
ordered_json number(double value) {
    if (!std::isfinite(value)) return concat(value);
    return value;
}

// A float as its shortest decimal: 1e-06, not 9.999999974752427e-07.
ordered_json short_number(float value) {
    std::ostringstream text;
    text.imbue(std::locale::classic());
    for (int digits = 6; digits <= 9; ++digits) {
        text.str("");
        text << std::setprecision(digits) << value;
        std::istringstream back(text.str());
        back.imbue(std::locale::classic());
        double read = 0;
        if (back >> read && static_cast<float>(read) == value) return read;
    }
    return number(value);
}

template <typename List, typename Convert>
ordered_json first_of(const List& list, std::size_t count, Convert convert) {
    ordered_json out = ordered_json::array();
    for (std::size_t i = 0; i < std::min(count, list.size()); ++i) out.push_back(convert(list[i]));
    return out;
}

const auto kSame = [](const auto& v) { return ordered_json(v); };

ordered_json list_json(const Value& value, std::size_t count) {
    if (const auto v = value.as_strings()) return first_of(*v, count, kSame);
    if (const auto v = value.as_bools()) {
        return first_of(*v, count, [](bool b) { return ordered_json(b); });
    }
    if (const auto v = value.as_uints()) return first_of(*v, count, kSame);
    if (const auto v = value.as_ints()) return first_of(*v, count, kSame);
    if (const auto v = value.as_floats()) return first_of(*v, count, short_number);
    return ordered_json::array();
}

ordered_json scalar_json(const Value& value) {
    if (const auto v = value.as_string()) return *v;
    if (const auto v = value.as_bool()) return *v;
    if (const auto v = value.as_uint()) return *v;
    if (const auto v = value.as_int()) return *v;
    const double v = value.as_float().value_or(0);
    return value.type() == ValueType::f32 ? short_number(static_cast<float>(v)) : number(v);
}

ordered_json value_json(const Value& value) {
    ordered_json out;
    out["type"] = value.type_text();
    if (value.type() != ValueType::array) {
        out["value"] = scalar_json(value);
    } else if (value.count() <= kListMax) {
        out["value"] = list_json(value, kListMax);
    } else {
        out["count"] = value.count();
        out["first"] = list_json(value, kFirst);
    }
    return out;
}

// Strings of a file may be any bytes; those that are no UTF-8 come out as U+FFFD.
std::string dump(const ordered_json& value, int indent) {
    return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

std::string value_text(const Value& value) {
    const ordered_json json = value_json(value);
    std::string text;
    if (value.type() == ValueType::array) {
        text = concat(value.count(), " of ", gguf::name_of(value.element_type()), ": ",
                      dump(json.contains("first") ? json["first"] : json["value"], -1));
        if (json.contains("first")) text.back() = ',';
        if (json.contains("first")) text += "...]";
    } else {
        text = dump(json["value"], -1);
    }
    text = escaped(text);
    if (text.size() <= kTextBytesMax) return text;
    std::size_t end = kTextBytesMax;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return text.substr(0, end) + "...";
}

std::string bytes_text(std::uint64_t bytes) {
    constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1024 && unit + 1 < std::size(kUnits)) {
        value /= 1024;
        ++unit;
    }
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out << std::fixed << std::setprecision(unit == 0 ? 0 : 2) << value << ' ' << kUnits[unit];
    return out.str();
}

std::string joined(const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
    return text;
}

void class_table(const Inspection& inspection, std::ostringstream& out) {
    ClassSize total;
    total.name = "all";
    const auto line = [&out](const ClassSize& c) {
        out << "  " << std::left << std::setw(24) << c.name << std::right << std::setw(7)
            << c.tensors << std::setw(18) << c.elements << std::setw(14) << bytes_text(c.bytes)
            << "  " << joined(c.types) << '\n';
    };
    out << "  " << std::left << std::setw(24) << "class" << std::right << std::setw(7) << "tensors"
        << std::setw(18) << "values" << std::setw(14) << "size"
        << "  types\n";
    for (const ClassSize& c : inspection.classes) {
        line(c);
        total.tensors += c.tensors;
        total.elements += c.elements;
        total.bytes += c.bytes;
    }
    line(total);
}

std::string shape_text(const gguf::Tensor& tensor) {
    std::string text;
    for (const std::uint64_t n : tensor.shape) text += concat(text.empty() ? "" : " x ", n);
    return text;
}

void tensor_table(const Inspection& inspection, std::ostringstream& out) {
    out << "\ntensors\n";
    for (const gguf::Tensor& tensor : inspection.file.tensors()) {
        out << "  " << std::left << std::setw(36) << escaped(tensor.name) << ' ' << std::setw(6)
            << quant::info(tensor.type).name << ' ' << std::setw(24) << shape_text(tensor)
            << std::right << std::setw(12) << bytes_text(tensor.data.size()) << "  part "
            << tensor.shard + 1 << '\n';
    }
}

void lacks_text(const Inspection& inspection, std::ostringstream& out) {
    if (!inspection.lacks) {
        out << "\nwhat the model wants is not known for this architecture\n";
    } else if (inspection.lacks->empty()) {
        out << "\nnothing that the model wants is missing\n";
    } else {
        out << "\nthe model wants and the file lacks\n";
        for (const std::string& sentence : *inspection.lacks)
            out << "  " << escaped(sentence) << '\n';
    }
    if (inspection.without.empty()) return;
    out << "without " << joined(inspection.without) << '\n';
}

}  // namespace

std::string inspection_json(const Inspection& inspection, bool tensors) {
    const gguf::File& file = inspection.file;
    ordered_json out;
    out["file"] = file.path();
    out["files"] = ordered_json::array();
    for (const std::string& path : file.paths()) out["files"].push_back(path);
    out["bytes"] = file.total_bytes();
    out["architecture"] = inspection.architecture;
    out["metadata"] = ordered_json::object();
    for (const auto& [key, value] : file.metadata()) out["metadata"][key] = value_json(value);
    out["classes"] = ordered_json::array();
    for (const ClassSize& c : inspection.classes) {
        out["classes"].push_back({{"class", c.name},
                                  {"tensors", c.tensors},
                                  {"elements", c.elements},
                                  {"bytes", c.bytes},
                                  {"types", c.types}});
    }
    out["lacks"] = inspection.lacks ? ordered_json(*inspection.lacks) : ordered_json(nullptr);
    out["without"] = inspection.without;
    if (tensors) {
        out["tensors"] = ordered_json::array();
        for (const gguf::Tensor& tensor : file.tensors()) {
            out["tensors"].push_back({{"name", tensor.name},
                                      {"type", quant::info(tensor.type).name},
                                      {"shape", tensor.shape},
                                      {"bytes", tensor.data.size()},
                                      {"part", tensor.shard + 1}});
        }
    }
    return dump(out, 1);
}

std::string inspection_text(const Inspection& inspection, bool tensors) {
    const gguf::File& file = inspection.file;
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out << escaped(file.path()) << ": "
        << (inspection.architecture.empty() ? "no architecture" : escaped(inspection.architecture))
        << ", " << file.tensors().size() << " tensors, " << bytes_text(file.total_bytes()) << " in "
        << file.paths().size() << (file.paths().size() == 1 ? " file\n\n" : " files\n\n");
    class_table(inspection, out);
    lacks_text(inspection, out);
    out << "\nmetadata\n";
    for (const auto& [key, value] : file.metadata()) {
        out << "  " << std::left << std::setw(46) << escaped(key) << ' ' << value_text(value)
            << '\n';
    }
    if (tensors) tensor_table(inspection, out);
    return out.str();
}

}  // namespace strata::convert
