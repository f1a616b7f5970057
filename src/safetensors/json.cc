#include "safetensors/json.h"

#include <unordered_set>
#include <vector>

#include "base/mapped_file.h"
#include "base/text.h"

namespace strata::safetensors {
namespace {

using nlohmann::json;

// Looks at every event of the parser, which recurses nowhere itself. What this refuses is dropped
// as it comes, so nothing deep is ever built.
class Guard {
  public:
    bool admit(int depth, json::parse_event_t event, const json& parsed) {
        if (!problem_.empty()) return false;
        using Event = json::parse_event_t;
        if (event == Event::object_start || event == Event::array_start) {
            if (depth >= kJsonDepthMax) {
                problem_ = concat("is nested deeper than ", kJsonDepthMax, " levels");
                return false;
            }
            keys_.emplace_back();
        } else if (event == Event::object_end || event == Event::array_end) {
            keys_.pop_back();
        } else if (event == Event::key) {
            const auto& key = parsed.get_ref<const std::string&>();
            if (!keys_.back().insert(key).second) {
                problem_ = concat("has the key ", quote(key), " twice in one object");
                return false;
            }
        }
        return true;
    }

    const std::string& problem() const { return problem_; }

  private:
    std::vector<std::unordered_set<std::string>> keys_;  // of every open object; none of arrays
    std::string problem_;
};

}  // namespace

Result<json> parse_json(std::string_view text, const std::string& path) {
    Guard guard;
    const auto admit = [&](int depth, json::parse_event_t event, json& parsed) {
        return guard.admit(depth, event, parsed);
    };
    json parsed = json::parse(text.begin(), text.end(), admit, /*allow_exceptions=*/false);
    if (!guard.problem().empty()) {
        return STRATA_ERROR("the JSON of ", quote(path), " ", guard.problem());
    }
    if (parsed.is_discarded()) return STRATA_ERROR("the JSON of ", quote(path), " is malformed");
    return parsed;
}

Result<json> read_json(const std::string& path, std::uint64_t bytes_max) {
    STRATA_ASSIGN(const MappedFile file, MappedFile::open(path));
    const auto bytes = file.bytes();
    if (bytes.size() > bytes_max) {
        return STRATA_ERROR(quote(path), " has ", bytes.size(), " bytes, wanted at most ",
                            bytes_max);
    }
    return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace strata::safetensors
