// Bounded by reading the chosen experts' matrices: rows are grouped by expert, so that each matrix
// is read once a call. Threads divide the rows of all matrices, not the experts, whose loads
// differ.
#include <algorithm>
#include <array>
#include <span>

#include "backend/cpu/expert_nets.h"
#include "backend/cpu/expert_panels.h"
#include "backend/cpu/expert_pieces.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/operand.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/route.h"
#include "base/check.h"

namespace strata::cpu {
namespace {

// Sums of members that stay in a near cache.
constexpr std::int64_t kContractSums = 1 << 14;
// Pieces that several threads share the work by.
constexpr std::int64_t kPiecesAThread = 8;
// Of the first net's matrices, asked for as soon as it is known.
constexpr std::int64_t kAskedForFirst = 1 << 14;  // bytes
constexpr std::int64_t kCacheLine = 64;           // bytes

// A call, its routing done. Members are the (row, slot) pairs in order of expert; after them come
// the T rows once more, for the shared expert.
struct Call {
    const op::Experts& args;
    Groups groups;
    const Net* matrices;              // [nets()]
    MatrixView<float> hidden;         // [T*k, F] in member order
    MatrixView<float> shared_hidden;  // [T, FS]
    MatrixView<float> shared_scale;   // [T, 1]
    MatrixView<const float> share;    // [T, k]

    std::int64_t members() const { return hidden.rows; }
    std::int64_t rows() const { return args.x.rows; }
    // The used experts and the shared one; and what memory is taken for, whoever is used: what a
    // step takes must not depend on its routing, or a warm one would allocate.
    std::int64_t nets() const { return groups.used + 1; }
    std::int64_t nets_most() const {
        return std::min<std::int64_t>(args.experts.count, members()) + 1;
    }
    bool is_shared(std::int64_t net) const { return net == groups.used; }
    std::int64_t first(std::int64_t net) const {
        return is_shared(net) ? members() : groups.first[net];
    }
    std::int64_t count(std::int64_t net) const {
        return is_shared(net) ? rows() : groups.first[net + 1] - groups.first[net];
    }
};

const Net* make_nets(const op::Experts& args, const Groups& groups, Net* nets) {
    for (std::int64_t u = 0; u < groups.used; ++u) nets[u] = net_of(args, groups.expert[u]);
    nets[groups.used] = {args.shared_gate, args.shared_up, args.shared_down};
    return nets;
}

// Rows first .. first+count-1, rounded, by themselves.
Rounded part_of(const Rounded& all, std::int64_t first, std::int64_t count) {
    Rounded part = all;
    part.rows = count;
    part.codes += first * all.code_items();
    part.scales += first * all.scale_items();
    part.sums += first * all.sum_items();
    return part;
}

// x as the nets' weights of one type want it.
struct Input {
    quant::Type type = quant::Type::f32;
    bool for_experts = false;
    bool for_shared = false;
    Rounded rows;     // [T] of x; a single one is its own tile
    Rounded members;  // [T*k] in tiles of one expert each, where it has several
    Rounded shared;   // [T] in tiles
};

// What is read first comes while the rows are being rounded.
void ask_for(const op::Weight& weight) {
    const std::int64_t bytes = std::min(weight.rows * weight.row_bytes, kAskedForFirst);
    for (std::int64_t at = 0; at < bytes; at += kCacheLine) {
        __builtin_prefetch(weight.data + at, 0, 2);
    }
}

// At most one a weight that reads x: gate and up of the experts and of the shared one.
struct Inputs {
    std::array<Input, 4> all;
    std::size_t count = 0;

    const Input& of(quant::Type type) const {
        const auto* found = std::find_if(all.data(), all.data() + count,
                                         [&](const Input& one) { return one.type == type; });
        return *found;
    }
};

Operand input_of(const Call& call, const Inputs& inputs, std::int64_t net, quant::Type type) {
    const MatrixView<const float> x = call.args.x;
    Operand operand{.cols = x.cols};
    if (!rounds_input(type)) {
        operand.plain = {.data = x.data, .stride = x.cols, .count = call.count(net)};
        if (!call.is_shared(net)) operand.plain.at = call.groups.row + call.first(net);
        return operand;
    }
    const Input& input = inputs.of(type);
    if (call.rows() == 1) {
        operand.rounded = input.rows;
    } else if (call.is_shared(net)) {
        operand.rounded = input.shared;
    } else if (call.count(net) == 1) {
        operand.rounded = part_of(input.rows, call.groups.row[call.first(net)], 1);
    } else {
        operand.rounded = part_of(input.members, call.first(net), call.count(net));
    }
    return operand;
}

void fill_input(const Call& call, Queue& queue, Input& input) {
    const MatrixView<const float> x = call.args.x;
    const quant::IntegerForm& form = *quant::info(input.type).integers;
    const bool transposed = find_routine(input.type, queue.instructions()).transposed;
    input.rows = take_rounded(queue, form, x.rows, x.cols);
    queue.split(x.rows, 2 * x.cols, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            round_row(x.row(t), 0, x.cols, transposed, queue.instructions(), input.rows, t);
        }
    });
    if (x.rows == 1) return;
    if (input.for_shared) {
        input.shared = take_rounded(queue, form, x.rows, x.cols);
        queue.split(x.rows, 2 * x.cols, [&](std::int64_t begin, std::int64_t end, int) {
            make_tiles(input.rows, nullptr, input.shared, begin, end);
        });
    }
    if (!input.for_experts) return;
    input.members = take_rounded(queue, form, call.members(), x.cols);
    const std::int64_t cost = 2 * x.cols * call.members() / call.groups.used;
    queue.split(call.groups.used, cost, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t net = begin; net < end; ++net) {
            if (call.count(net) == 1) continue;
            make_tiles(input.rows, call.groups.row + call.first(net),
                       part_of(input.members, call.first(net), call.count(net)), 0,
                       call.count(net));
        }
    });
}

Inputs make_inputs(const Call& call, Queue& queue) {
    const op::Experts& args = call.args;
    Inputs inputs;
    const auto want = [&](quant::Type type, bool shared) {
        if (!rounds_input(type)) return;
        auto* end = inputs.all.data() + inputs.count;
        auto* input = std::find_if(inputs.all.data(), end,
                                   [&](const Input& one) { return one.type == type; });
        if (input == end) ++inputs.count;
        input->type = type;
        (shared ? input->for_shared : input->for_experts) = true;
    };
    for (const auto type : {args.experts.gate_type, args.experts.up_type}) want(type, false);
    for (const auto type : {args.shared_gate.type, args.shared_up.type}) want(type, true);
    for (Input& input : std::span(inputs.all).first(inputs.count)) fill_input(call, queue, input);
    return inputs;
}

// The hidden rows of one kind of net as its down matrix wants them; nothing where it takes them as
// they are.
struct HiddenRows {
    Rounded rows;   // a single one of a net is its own tile
    Rounded tiles;  // each net's
};

struct Hidden {
    HiddenRows members;
    HiddenRows shared;
};

Operand hidden_of(const Call& call, const Hidden& hidden, std::int64_t net) {
    const bool shared = call.is_shared(net);
    const MatrixView<float>& plain = shared ? call.shared_hidden : call.hidden;
    const std::int64_t first = shared ? 0 : call.first(net);
    const std::int64_t count = call.count(net);
    Operand operand{.cols = plain.cols};
    const HiddenRows& own = shared ? hidden.shared : hidden.members;
    if (own.rows.form == nullptr) {
        operand.plain = {.data = plain.row(first), .stride = plain.cols, .count = count};
    } else {
        operand.rounded = part_of(count == 1 ? own.rows : own.tiles, first, count);
    }
    return operand;
}

// Rows follow one another, so that many are rounded as one.
HiddenRows round_all(const MatrixView<float>& plain, quant::Type type, Queue& queue) {
    if (!rounds_input(type)) return {};
    const quant::IntegerForm& form = *quant::info(type).integers;
    const bool transposed = find_routine(type, queue.instructions()).transposed;
    const Rounded rows = take_rounded(queue, form, plain.rows, plain.cols);
    queue.split(plain.rows, 2 * plain.cols, [&](std::int64_t begin, std::int64_t end, int) {
        Rounded part = part_of(rows, begin, 1);
        part.cols = (end - begin) * plain.cols;
        round_row(plain.row(begin), 0, part.cols, transposed, queue.instructions(), part, 0);
    });
    if (plain.rows == 1) return {rows, rows};
    return {rows, take_rounded(queue, form, plain.rows, plain.cols)};
}

Hidden round_hidden(const Call& call, Queue& queue) {
    const Hidden made{round_all(call.hidden, call.args.experts.down_type, queue),
                      round_all(call.shared_hidden, call.args.shared_down.type, queue)};
    if (call.rows() == 1) return made;
    const std::int64_t cost = call.hidden.size() / call.nets() + call.shared_hidden.cols;
    queue.split(call.nets(), cost, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t net = begin; net < end; ++net) {
            const bool shared = call.is_shared(net);
            const HiddenRows& own = shared ? made.shared : made.members;
            const std::int64_t first = shared ? 0 : call.first(net);
            const std::int64_t count = call.count(net);
            if (own.rows.form == nullptr || count == 1) continue;
            make_tiles(part_of(own.rows, first, count), nullptr, part_of(own.tiles, first, count),
                       0, count);
        }
    });
    return made;
}

// Rows of a net's gate and up that are computed together.
std::int64_t piece_rows(const Call& call, std::int64_t net) {
    return rows_together(call.count(net), call.args.x.cols);
}

// hidden = silu(gate . x) * (up . x) of a net's rows, for piece_rows or fewer rows of its matrices
// from `first` on.
void expand(const Call& call, const Inputs& inputs, std::int64_t net, std::int64_t first,
            Instructions instructions, const Workspace& workspace) {
    const op::Weight& gate = call.matrices[net].gate;
    const op::Weight& up = call.matrices[net].up;
    const std::int64_t count = call.count(net);
    const std::int64_t rows = std::min(piece_rows(call, net), gate.rows - first);
    float* gates = workspace.sums;
    float* ups = gates + piece_rows(call, net) * count;
    // Of matrices that are one piece the next ones lie elsewhere: two ahead, because one alone is
    // too short for what its first bytes take to come.
    const bool whole = rows == gate.rows;
    const bool last = net + 1 == call.nets();
    const Net& after = call.matrices[last ? 0 : net + 1];
    const Net& then = call.matrices[last && call.nets() > 1 ? 1 : 0];
    multiply_rows(gate, first, rows, input_of(call, inputs, net, gate.type), instructions,
                  workspace, gates,
                  !whole ? nullptr
                  : last ? after.down.data
                         : after.gate.data);
    multiply_rows(up, first, rows, input_of(call, inputs, net, up.type), instructions, workspace,
                  ups,
                  !whole ? nullptr
                  : last ? then.down.data
                         : after.up.data);
    const MatrixView<float>& hidden = call.is_shared(net) ? call.shared_hidden : call.hidden;
    float* to = hidden.row(call.is_shared(net) ? 0 : call.first(net)) + first;
    for (std::int64_t i = 0; i < rows; i += kPanelRows) {
        const std::int64_t at = place_of(i, count);
        run_kernel<GatePanel>(instructions, gates + at, ups + at, count,
                              std::min<std::int64_t>(kPanelRows, rows - i), to + i, hidden.cols);
    }
}

// About the cycles of one row of a net's gate and up.
std::int64_t row_cost(const Call& call, std::int64_t net) {
    const op::Weight& gate = call.matrices[net].gate;
    const std::int64_t rate = rounds_input(gate.type) ? 64 : 16;
    return std::max(gate.row_bytes / 2, call.count(net) * gate.cols * 2 / rate) + 1;
}

Division divide(const Call& call, Queue& queue) {
    const std::int64_t nets = call.nets();
    const std::int64_t most = call.nets_most() + 1;
    const Division division{queue.take<std::int64_t>(most), queue.take<std::int64_t>(most), nets};
    division.first_piece[0] = 0;
    division.first_cost[0] = 0;
    for (std::int64_t net = 0; net < nets; ++net) {
        const std::int64_t rows = call.is_shared(net) ? call.shared_hidden.cols : call.hidden.cols;
        const std::int64_t together = piece_rows(call, net);
        division.first_piece[net + 1] =
            division.first_piece[net] + (rows + together - 1) / together;
        division.first_cost[net + 1] = division.first_cost[net] + rows * row_cost(call, net);
    }
    return division;
}

void expand_all(const Call& call, const Inputs& inputs, Queue& queue,
                const Workspaces& workspaces) {
    const Division division = divide(call, queue);
    const std::int64_t cost = division.first_cost[division.nets];
    const auto cut = [&](std::int64_t thread) {
        return division.piece_at(cost * thread / queue.threads());
    };
    queue.share(
        division.first_piece[division.nets], 4 * cost, cut, [&](std::int64_t piece, int thread) {
            const std::int64_t net = division.net_of(piece);
            const std::int64_t first = (piece - division.first_piece[net]) * piece_rows(call, net);
            expand(call, inputs, net, first, queue.instructions(), workspaces.of(thread));
        });
}

// Rows of y that are computed together at least.
std::int64_t least_rows_together(const Call& call) {
    return rows_together(call.rows(), std::max(call.hidden.cols, call.shared_hidden.cols));
}

// Rows of y that are computed together: their sums of all members have to stay in a cache, and a
// net's matrix is better read in one go.
std::int64_t contract_rows(const Call& call, std::int64_t threads) {
    if (call.rows() >= kManyInputRows) return 2 * kPanelRows;
    std::int64_t rows = least_rows_together(call);
    const std::int64_t width = call.args.y.cols;
    const std::int64_t members = call.members() + call.rows();
    const std::int64_t least =
        threads == 1 ? 1 : kPiecesAThread * threads;  // so that all end alike
    while (2 * rows * least <= width && 2 * rows * members <= kContractSums) rows *= 2;
    return rows;
}

// What the net of a member gives, in panels: a net's sums follow those of the nets before it,
// `together` a member.
Panels panels_of(const Call& call, const float* sums, std::int64_t together, std::int64_t net,
                 std::int64_t member) {
    const std::int64_t first = call.first(net);
    return {sums + first * together + (member - first) * kPanelRows, call.count(net) * kPanelRows};
}

// `count` values of row t of y, at `y`.
void add_members(const Call& call, const float* sums, std::int64_t together, std::int64_t t,
                 std::int64_t count, Instructions instructions, float* y) {
    const std::int64_t k = call.args.active;
    const Panels shared = panels_of(call, sums, together, call.groups.used, call.members() + t);
    Panels parts[op::kExpertsActiveMax];
    for (std::int64_t s = 0; s < k; ++s) {
        const std::int64_t member = call.groups.place[t * k + s];
        parts[s] = panels_of(call, sums, together, call.groups.net[member], member);
    }
    run_kernel<AddParts>(instructions, static_cast<const Panels*>(parts), call.share.row(t), k,
                         shared, call.shared_scale.row(t)[0], count, y);
}

// y[., first .. first+count-1], count <= contract_rows. The workspace's sums get, panel by panel,
// what every member, then every row's shared net, gives.
void contract(const Call& call, const Hidden& hidden, std::int64_t first, std::int64_t count,
              std::int64_t together, Instructions instructions, const Workspace& workspace) {
    for (std::int64_t net = 0; net < call.nets(); ++net) {
        const std::int64_t following = net + 1 < call.nets() ? net + 1 : 0;
        const std::int64_t then = following == 0 ? first + count : first;
        const op::Weight& down = call.matrices[net].down;
        const op::Weight& next = call.matrices[following].down;
        const Operand x = hidden_of(call, hidden, net);
        float* sums = workspace.sums + call.first(net) * together;
        multiply_rows(down, first, count, x, instructions, workspace, sums,
                      next.row(std::min(then, next.rows - 1)));
    }
    for (std::int64_t t = 0; t < call.rows(); ++t) {
        add_members(call, workspace.sums, together, t, count, instructions,
                    call.args.y.row(t) + first);
    }
}

void show_inputs(const Call& call, device::InputObserver& observer) {
    for (std::int64_t net = 0; net < call.nets(); ++net) {
        const bool shared = call.is_shared(net);
        for (std::int64_t m = 0; m < call.count(net); ++m) {
            const std::int64_t row = shared ? m : call.groups.row[call.first(net) + m];
            const std::span x(call.args.x.row(row), static_cast<std::size_t>(call.args.x.cols));
            const MatrixView<float>& hidden = shared ? call.shared_hidden : call.hidden;
            observer.input(call.matrices[net].gate.data, 0, x);
            observer.input(call.matrices[net].up.data, 0, x);
            observer.input(call.matrices[net].down.data, 0,
                           {hidden.row(shared ? m : call.first(net) + m),
                            static_cast<std::size_t>(hidden.cols)});
        }
    }
}

void check(const op::Experts& args) {
    const std::int64_t rows = args.x.rows;
    const std::int64_t width = args.x.cols;
    const std::int64_t experts = args.experts.count;
    STRATA_CHECK(args.active >= 1 && args.active <= op::kExpertsActiveMax);
    STRATA_CHECK(args.active <= experts && experts <= op::kExpertsMax);
    STRATA_CHECK(has_shape(args.router, experts, width));
    STRATA_CHECK(has_shape(args.shared_scale, 1, width));
    STRATA_CHECK(has_shape(args.shared_gate, args.shared_gate.rows, width));
    STRATA_CHECK(has_shape(args.shared_up, args.shared_gate.rows, width));
    STRATA_CHECK(has_shape(args.shared_down, width, args.shared_gate.rows));
    STRATA_CHECK(args.y.rows == rows && args.y.cols == width);
    STRATA_CHECK(args.chosen.empty() ||
                 (args.chosen.rows == rows && args.chosen.cols == args.active));
    STRATA_CHECK(args.share.empty() || (args.share.rows == rows && args.share.cols == args.active));
}

// Routes every row and lays out what the nets need.
Call route(const op::Experts& args, Queue& queue) {
    const std::int64_t rows = args.x.rows;
    const std::int64_t experts = args.experts.count;
    const int k = args.active;
    const std::int64_t members = rows * k;
    const MatrixView<float> scale = queue.matrix(rows, 1);

    const MatrixView<std::int32_t> chosen =
        args.chosen.empty() ? MatrixView<std::int32_t>{queue.take<std::int32_t>(members), rows, k}
                            : args.chosen;
    const MatrixView<float> share = args.share.empty() ? queue.matrix(rows, k) : args.share;
    route_rows(args, queue, {chosen, share, scale});

    const std::int64_t most = std::min(experts, members);
    Groups groups{.expert = queue.take<std::int32_t>(most),
                  .first = queue.take<std::int32_t>(most + 1),
                  .row = queue.take<std::int32_t>(members),
                  .place = queue.take<std::int32_t>(members),
                  .net = queue.take<std::int32_t>(members)};
    group_rows(chosen, experts, queue.take<std::int32_t>(experts + 1), groups);
    return {.args = args,
            .groups = groups,
            .matrices = make_nets(args, groups, queue.take<Net>(most + 1)),
            .hidden = queue.matrix(members, args.experts.hidden),
            .shared_hidden = queue.matrix(rows, args.shared_gate.rows),
            .shared_scale = scale,
            .share = share};
}

}  // namespace

void experts(const op::Experts& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    if (args.x.rows == 0) return;
    const Call call = route(args, own);
    ask_for(call.matrices[0].gate);
    ask_for(call.matrices[0].up);
    const Inputs inputs = make_inputs(call, own);
    const std::int64_t width = args.x.cols;
    const std::int64_t widest = std::max({width, args.experts.hidden, args.shared_gate.rows});
    std::int64_t bytes = 0;
    for (const std::int64_t net : {std::int64_t{0}, call.groups.used}) {
        const Net& own_net = call.matrices[net];
        bytes =
            std::max({bytes, own_net.gate.row_bytes, own_net.up.row_bytes, own_net.down.row_bytes});
    }
    const std::int64_t together = contract_rows(call, own.threads());
    const Workspaces workspaces(own, bytes, widest,
                                std::max(2 * kPanelsMax * kPanelRows * args.x.rows,
                                         together * (call.members() + call.rows())));
    expand_all(call, inputs, own, workspaces);
    if (own.observer() != nullptr) show_inputs(call, *own.observer());
    const Hidden hidden = round_hidden(call, own);
    const std::int64_t pieces = (width + together - 1) / together;
    const std::int64_t cost =
        together * (call.members() * args.experts.hidden + call.shared_hidden.size());
    const auto cut = [&](std::int64_t thread) { return pieces * thread / own.threads(); };
    own.share(pieces, pieces * cost, cut, [&](std::int64_t piece, int thread) {
        const std::int64_t first = piece * together;
        contract(call, hidden, first, std::min(together, width - first), together,
                 own.instructions(), workspaces.of(thread));
    });
}

}  // namespace strata::cpu
