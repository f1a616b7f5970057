// strata inspect: what is in a GGUF file.
#include "cli/command.h"
#include "cli/output.h"
#include "strata/convert.h"

namespace strata::cli {

Run add_inspect(Options& options) {
    const auto to = std::make_shared<InspectRequest>();
    options.text("FILE", "FILE", &to->path, "A GGUF file or a part of a split set").required();
    options.flag("--tensors", &to->tensors, "List every tensor");
    options.flag("--json", &to->json, "Print one JSON object instead of a table");
    return [to]() -> Status {
        STRATA_ASSIGN(std::string report, inspect_file(*to));
        if (report.empty() || report.back() != '\n') report += '\n';
        return print(report);
    };
}

}  // namespace strata::cli
