#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "cli/input.h"

namespace strata::cli {
namespace {

std::string joined(const std::vector<std::string>& words, const std::string& between) {
    std::string out;
    for (const std::string& word : words) {
        if (!out.empty()) out += between;
        out += word;
    }
    return out;
}

Result<std::vector<std::int32_t>> read_list(const std::string& text, const std::string& item) {
    if (text.empty() || text[0] != '@') return parse_list(text, item);
    const std::string path = text.substr(1);
    STRATA_ASSIGN(const std::string content, read_text(path));
    auto list = parse_list(content, item);
    if (list.ok()) return list;
    return STRATA_ERROR("file ", quote(path), ": ", list.error().message);
}

}  // namespace

Options::Added Options::Added::required() {
    option_->required();
    return *this;
}

CLI::Option* Options::add(const std::string& names, const std::string& value,
                          const std::string& help, Take take) {
    auto read = [names, take = std::move(take)](const CLI::results_t& results) {
        for (const std::string& result : results) {
            const Status status = take(result);
            if (!status.ok()) throw CLI::ValidationError(names, status.error().message);
        }
        return true;
    };
    return app_.add_option(names, std::move(read), help)->type_name(value);
}

void Options::flag(const std::string& names, bool* to, const std::string& help) {
    app_.add_flag(names, *to, help)->disable_flag_override();
}

Options::Added Options::text(const std::string& names, const std::string& value, std::string* to,
                             const std::string& help) {
    return Added(add(names, value, help, [value, to](const std::string& text) -> Status {
        if (text.empty()) return STRATA_ERROR("it is empty, and ", value, " is wanted");
        *to = text;
        return Ok{};
    }));
}

Options::Added Options::text(const std::string& names, const std::string& value,
                             std::optional<std::string>* to, const std::string& help) {
    return Added(add(names, value, help, [to](const std::string& text) -> Status {
        *to = text;
        return Ok{};
    }));
}

void Options::text_or_flag(const std::string& names, const std::string& value,
                           std::optional<std::string>* to, const std::string& help) {
    add(names, value, help, [to](const std::string& text) -> Status {
        *to = text;
        return Ok{};
    })->expected(0, 1);
}

void Options::texts(const std::string& names, const std::string& value,
                    std::vector<std::string>* to, const std::string& help) {
    CLI::Option* option = add(names, value, help, [to](const std::string& text) -> Status {
        to->push_back(text);
        return Ok{};
    });
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

Options::Added Options::choice(const std::string& names, const std::vector<std::string>& choices,
                               std::size_t* to, const std::string& help) {
    return Added(
        add(names, joined(choices, "|"), help, [choices, to](const std::string& text) -> Status {
            const auto found = std::find(choices.begin(), choices.end(), text);
            if (found == choices.end()) {
                return STRATA_ERROR(quote(text), " is none of ", joined(choices, ", "));
            }
            *to = static_cast<std::size_t>(found - choices.begin());
            return Ok{};
        }));
}

Options::Added Options::integer(const std::string& names, IntegerRange range, std::int64_t* to,
                                const std::string& help) {
    return Added(add(names, "N", help, [range, to](const std::string& text) -> Status {
        STRATA_ASSIGN(*to, parse_integer(text, range));
        return Ok{};
    }));
}

Options::Added Options::integer(const std::string& names, IntegerRange range,
                                std::optional<std::int64_t>* to, const std::string& help) {
    return Added(add(names, "N", help, [range, to](const std::string& text) -> Status {
        STRATA_ASSIGN(*to, parse_integer(text, range));
        return Ok{};
    }));
}

void Options::seed(const std::string& names, std::optional<std::uint64_t>* to,
                   const std::string& help) {
    add(names, "N", help, [to](const std::string& text) -> Status {
        STRATA_ASSIGN(*to, parse_seed(text));
        return Ok{};
    });
}

void Options::real(const std::string& names, std::optional<double>* to, const std::string& help) {
    add(names, "X", help, [to](const std::string& text) -> Status {
        STRATA_ASSIGN(*to, parse_real(text));
        return Ok{};
    });
}

void Options::parsed(const std::string& names, const std::string& value,
                     std::function<Status(const std::string& text)> read, const std::string& help) {
    add(names, value, help, std::move(read));
}

Options::Added Options::list(const std::string& names, const std::string& item,
                             std::optional<std::vector<std::int32_t>>* to,
                             const std::string& help) {
    return Added(add(names, "LIST", help, [item, to](const std::string& text) -> Status {
        STRATA_ASSIGN(*to, read_list(text, item));
        return Ok{};
    }));
}

Run Options::commands(const std::vector<Command>& commands) {
    app_.require_subcommand(1);
    const auto chosen = std::make_shared<Run>();
    for (const Command& command : commands) {
        CLI::App* sub = app_.add_subcommand(command.name, command.help);
        sub->formatter(app_.get_formatter());
        sub->footer(app_.get_footer());
        Options options(*sub);
        sub->parse_complete_callback([chosen, run = command.add(options)] { *chosen = run; });
    }
    return [chosen] { return (*chosen)(); };
}

void Options::check(std::function<Status()> check) {
    if (!checks_) {
        checks_ = std::make_shared<std::vector<std::function<Status()>>>();
        app_.callback([checks = checks_, name = app_.get_name()] {
            for (const auto& one : *checks) {
                const Status status = one();
                if (!status.ok()) throw CLI::ValidationError(status.error().message);
            }
        });
    }
    checks_->push_back(std::move(check));
}

}  // namespace strata::cli
