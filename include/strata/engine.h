// The whole public interface to a loaded model. Own types only: it builds without src/ on the path.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/result.h"

namespace strata {

// Numbers that keys and values are kept in; q8_0: 8 bits, and an F16 scale for every 32.
enum class CacheKind : std::uint8_t { f16, f32, q8_0 };

// How delta nets read a prompt. The recurrent form gives the same bits however a prompt is cut; the
// chunked one differs from it by rounding.
enum class PromptForm : std::uint8_t { recurrent, chunked };

// What a model runs on.
struct DeviceChoice {
    enum class Kind : std::uint8_t {
        best,  // the first CUDA device that holds the model, else the CPU
        cpu,
        cuda
    };
    Kind kind = Kind::best;
    int number = 0;  // of the CUDA device
};

inline constexpr std::int64_t kChunkRowsMax = 4096;
inline constexpr std::int64_t kWindowMax = 16;
inline constexpr std::int64_t kNgramMappedBytes = std::int64_t{4} << 30;
inline constexpr std::int64_t kNgramCacheBytes = std::int64_t{64} << 20;

// Where to write what a drafter is trained on: of every token that a session keeps, in the order in
// which they are run, position and token to PREFIX.idx, the mean of the residual streams after each
// of `layers` to PREFIX.f16, and where `residual` is set the streams after the last layer to
// PREFIX.res.
struct DumpOptions {
    std::string prefix;  // empty: nothing is written
    // Counted from 0, ascending. Empty: those that the DFlash2 draft reads; without one five,
    // spread as default_feature_layers() has them.
    std::vector<std::int64_t> layers;
    bool residual = false;
};

// Five layers of a model of `layers`: round(linspace(5, layers - 3, 5)), and where that does not
// give five distinct ones, as many as there are to five, spread evenly from the first to the last.
std::vector<std::int64_t> default_feature_layers(std::int64_t layers);

struct EngineOptions {
    std::string model;   // a GGUF file, a part of a split set, or a folder holding one
    std::string dflash;  // a DFlash2 draft's GGUF file; empty: none
    std::string mtp;     // a GGUF file of the MTP layer; empty: the model file's own
    // Files likewise that no session will draft with: held to the model, and not loaded.
    std::string unused_dflash;
    std::string unused_mtp;
    DeviceChoice device;
    int threads = 0;  // of the CPU; 0: all cores that this process may use
    // Tokens that a sequence may reach. 0: the trained length, or as many as memory has room for.
    std::int64_t context = 0;
    std::int64_t chunk = 512;  // prompt tokens read at a time, 1 to kChunkRowsMax
    CacheKind cache = CacheKind::f16;
    // Bytes of n-gram table rows to keep, the table being read from its file. 0: the table is
    // mapped whole. Nothing: 0 for tables of at most kNgramMappedBytes, else kNgramCacheBytes.
    std::optional<std::int64_t> ngram_cache = std::nullopt;
    PromptForm prompt_form = PromptForm::recurrent;
    DumpOptions dump;
    // Bytes to stay within, of the host's memory and of a GPU's; nothing: all that is free.
    std::optional<std::int64_t> ram = std::nullopt;
    std::optional<std::int64_t> vram = std::nullopt;
    // Bytes for states of earlier prompts and answers, in the host's memory; 0: none are kept.
    // Nothing: one state of the whole context, and some more where there is room.
    std::optional<std::int64_t> checkpoints = std::nullopt;
};

// What a loaded model takes, in bytes: planned before any of it is taken.
struct MemoryUse {
    std::uint64_t weights = 0;      // without an n-gram table that is read row by row
    std::uint64_t state = 0;        // of one session at the whole context
    std::uint64_t workspace = 0;    // buffers of the largest step, and n-gram rows that are kept
    std::uint64_t drafter = 0;      // weights, context and workspace of drafts
    std::uint64_t reserve = 0;      // scratch, and what program and driver take for themselves
    std::uint64_t checkpoints = 0;  // at most; always in the host's memory
};

// How the next token is taken from the logits, in this order: penalties over the last
// `penalty_window` tokens, division by the temperature, the top_k largest, the smallest set
// reaching top_p, those of at least min_p times the largest, then one draw that depends on seed,
// position and the logits alone. Temperature 0 takes the largest logit after penalties (of equal
// ones the lower id).
struct Sampling {
    double temperature = 0;
    std::int64_t top_k = 0;  // 0: all
    double top_p = 1;
    double min_p = 0;
    double repeat_penalty = 1;         // positive logits divided by it, negative ones multiplied
    double presence_penalty = 0;       // taken once from each token seen
    double frequency_penalty = 0;      // taken once for each time it was seen
    std::int64_t penalty_window = 64;  // 0: no penalties, -1: the whole sequence
    std::uint64_t seed = 0;
};

// Error: a number that is out of range or not finite.
Status check(const Sampling& sampling);

// Error: too many stop strings, or one that is empty, too long or not UTF-8.
Status check_stops(const std::vector<std::string>& stops);

enum class Finish : std::uint8_t { stop, length, cancelled };

struct Timings {
    double load_ms = 0;
    double prompt_ms = 0;
    double decode_ms = 0;
    std::int64_t prompt_tokens = 0;  // that were read; others were already in the session
    std::int64_t decode_tokens = 0;
};

// What one drafter did.
struct DrafterCounts {
    std::string name;
    std::int64_t windows = 0;  // that it guessed in
    std::int64_t drafted = 0;
    std::int64_t accepted = 0;
};

// What drafting did. Without a drafter every window has one row and nothing is drafted.
struct DraftCounts {
    // The drafter; of several the one whose guesses were right most often.
    std::string kind = "none";
    std::vector<DrafterCounts> by_drafter;  // where there are several to choose from
    std::int64_t windows = 0;
    std::int64_t drafted = 0;
    std::int64_t accepted = 0;
    std::vector<std::int64_t> accepted_by_position;
    double draft_ms = 0;
    double verify_ms = 0;
};

// Adds the windows of `from`; `to` is empty or of the same drafters.
void add(const DraftCounts& from, DraftCounts& to);

struct Completion {
    std::int64_t prompt_tokens = 0;
    std::vector<std::int32_t> tokens;  // generated ids, an end token included
    std::string text;                  // without the end token and from a stop string on
    Finish finish = Finish::length;
    bool whole = true;  // false: the text was to be of a format, and is the beginning of one
    Timings timings;
    DraftCounts draft;
};

// Who guesses tokens ahead. Guesses are verified by the model itself: they change the speed and
// never the text, greedy or sampled.
enum class DraftKind : std::uint8_t {
    none,
    suffix,  // what followed when the text ended like this before
    mtp,     // the model's own multi-token-prediction layer
    dflash,  // the DFlash2 draft that the engine loaded
    joined,  // as suffix, and where that guesses nothing as dflash, or mtp without a draft
    best     // of all that there are, whoever gives most tokens a second, window by window
};

// Below it a DFlash2 guess costs more than it gives.
inline constexpr double kDflashConfidenceMin = 0.5;

struct Drafting {
    DraftKind kind = DraftKind::none;
    // Of a verify window: the last token and rows-1 guesses; 2 to kWindowMax. 0: as many as the
    // draft's block has, 4 of the MTP layer, kWindowMax at most of others; of joined what each has.
    std::int64_t rows = 0;
    // A draft ends before the first guess below it, 0 to 1; unless given kDflashConfidenceMin of a
    // DFlash2 draft and 0 of others.
    std::optional<double> confidence_min;
};

// What the text of an answer is held to, whoever guesses tokens.
enum class ResponseFormat : std::uint8_t {
    text,  // nothing
    // One JSON object (RFC 8259) in UTF-8, and an end token after it, where none of max_tokens, a
    // stop string and a full context cuts it. Where the prompt leaves thinking open the answer is
    // held to this from the token on that follows the one that ends the thinking; before that any
    // token may come but an end token, in whose place another one is drawn.
    json_object
};

struct GenerateRequest {
    std::vector<std::int32_t> prompt;  // the whole sequence so far, at least one token
    std::int64_t max_tokens = -1;      // -1: until the context is full
    Sampling sampling;
    std::vector<std::string> stops;
    bool ignore_end_tokens = false;
    ResponseFormat format = ResponseFormat::text;
    // Whether the states after prompt and answer are kept for later prompts that begin like them,
    // within EngineOptions::checkpoints. Not where features are dumped, nor in the chunked form.
    bool keep_states = true;
};

// Gets each piece of text as it becomes certain: whole UTF-8 characters, nothing of a stop string.
// False ends the generation.
using TextSink = std::function<bool(std::string_view)>;

struct ModelInfo {
    std::string file;  // as EngineOptions::model has it
    std::string name;
    std::int64_t layers = 0;
    std::int64_t hidden = 0;
    std::int64_t vocabulary = 0;
    std::int64_t trained_context = 0;
    std::int64_t context = 0;  // tokens that a sequence may reach here
    bool has_mtp = false;
    bool has_tokenizer = false;
    std::uint64_t file_bytes = 0;
    std::string device;       // what the model runs on
    std::string device_note;  // why not a GPU, where one was looked for or limited; else empty
    // Why the context is shorter than the trained length that was not asked for; else empty.
    std::string context_note;
    MemoryUse memory;
    std::vector<std::int32_t> end_tokens;
    // From the file; temperature 0 where it says nothing.
    Sampling sampling;
};

// One greedy guess after a context and an anchor token.
struct Draft {
    std::vector<std::int32_t> path;
    std::vector<float> confidence;
    // Of a block draft, `width` for each guess: the tokens it chose from by logit, largest first,
    // and their scores.
    std::int64_t width = 0;
    std::vector<std::int32_t> candidates;
    std::vector<float> scores;
};

enum class LogitsHead : std::uint8_t { main, mtp };

struct LogitsRequest {
    std::vector<std::int32_t> tokens;
    // Rows a window, run through the path that verifies drafts; 0: read as a prompt is.
    std::int64_t window = 0;
    LogitsHead head = LogitsHead::main;
};

// Consecutive rows, [rows, width] row-major; an error ends the call with it.
using RowSink = std::function<Status(std::span<const float> rows)>;

// What one matrix of a model's file, or each of the experts in it, was multiplied with.
struct InputSum {
    std::int64_t width = 0;
    std::vector<float> squares;  // [parts, width]: the sum of each column's squared inputs
    std::vector<float> counts;   // [parts]: inputs
};

// By the tensor's name.
using InputSums = std::map<std::string, InputSum>;

// One message of a conversation.
struct Message {
    std::string role;  // system, user or assistant
    std::string text;
};

class Session;

// A loaded model. Sessions and calls of one engine are not concurrent.
class Engine {
  public:
    // Errors: a file that cannot be read or holds no model of this architecture, options out of
    // range, a context that memory has no room for.
    static Result<std::unique_ptr<Engine>> load(const EngineOptions& options);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    const ModelInfo& info() const;

    // Error: the device has failed. Requests end with this error, and every later one will: what is
    // left is to end the process.
    Status status() const;

    // Text to ids: as a user wrote it, or with special tokens recognised. Error: no tokenizer.
    Result<std::vector<std::int32_t>> tokenize(std::string_view text) const;
    Result<std::vector<std::int32_t>> tokenize_with_special(std::string_view text) const;
    // Ids to text, broken characters as U+FFFD; empty without a tokenizer.
    std::string detokenize(std::span<const std::int32_t> tokens) const;

    // The model's ChatML form of a conversation, ready for the assistant to answer: thinking open
    // or already closed. Message text never becomes a control token. Errors: no tokenizer, a
    // tokenizer without ChatML's tokens, an unknown role.
    Result<std::vector<std::int32_t>> chat_prompt(std::span<const Message> messages,
                                                  bool thinking) const;
    // What stands between an answer that ended (with its end token or without) and the next answer
    // to `text`: appended to the session's tokens it continues the conversation.
    Result<std::vector<std::int32_t>> chat_turn(std::string_view text, bool thinking,
                                                bool answer_ended) const;

    // An empty session with room for `tokens` tokens, at most the context; 0: the whole context.
    // Errors: no memory, drafting out of range, a drafter that the engine does not have.
    Result<Session> make_session(std::int64_t tokens = 0, const Drafting& drafting = {});

    // Teacher-forced logits of every position ([n, vocabulary] in all; [n-1, vocabulary] for the
    // MTP head: row p from the trunk's residual at p and token p+1).
    Status logits(const LogitsRequest& request, const RowSink& sink);
    // Adds what every matrix is multiplied with while the tokens are read from an empty state, the
    // MTP layer's too. Errors: an empty list, more tokens than the context, a token outside the
    // vocabulary, a backend that does not show it.
    Status add_input_sums(std::span<const std::int32_t> tokens, InputSums& sums);
    // The mean of the residual streams after each of `layers`: [n, layers * hidden] in all.
    Status features(std::span<const std::int32_t> tokens, std::span<const std::int64_t> layers,
                    const RowSink& sink);
    // A chain of `guesses` guesses of the MTP layer after `tokens` and `anchor`, the token that
    // follows.
    Result<Draft> draft_mtp(std::span<const std::int32_t> tokens, std::int32_t anchor,
                            std::int64_t guesses, float confidence_min);
    // A block of `rows` rows of the DFlash2 draft: the anchor's and one a guess; 0: the draft's
    // block size. Error: no draft was loaded, more rows than its block has.
    Result<Draft> draft_dflash(std::span<const std::int32_t> tokens, std::int32_t anchor,
                               std::int64_t rows, float confidence_min);

  private:
    friend class Session;
    struct Parts;
    explicit Engine(std::unique_ptr<Parts> parts);
    std::unique_ptr<Parts> parts_;
};

// One conversation's state. Outlived by its engine. Movable.
class Session {
  public:
    Session(Session&&) noexcept;
    Session& operator=(Session&&) noexcept;
    ~Session();

    // Continues request.prompt, the whole sequence, from the longest state that it begins with: the
    // session's own or one that the engine kept after an earlier request; where there is none it is
    // read from its start. Afterwards the session holds the prompt and all generated tokens but the
    // last. Errors that leave the session as it was: an empty prompt, a token outside the
    // vocabulary, a prompt that does not fit, sampling out of range, a stop string that is empty,
    // too long or not UTF-8, a format without a tokenizer or with end tokens ignored. Errors that
    // leave it with the prompt and what was generated so far: logits that are NaN, or finite of no
    // token that may follow; a format that no token goes on with. Error after which every request
    // fails: the device has failed (Engine::status).
    Result<Completion> generate(const GenerateRequest& request, const TextSink& sink = {});

    // The tokens that the state stands for.
    std::span<const std::int32_t> tokens() const;

    // The state as bytes, and back: what the drafter remembers too, where the session that gets it
    // back has the same drafter. Errors: bytes of another model or other options; the device has
    // failed.
    Result<std::string> save() const;
    Status restore(std::string_view saved);

  private:
    friend class Engine;
    struct State;
    explicit Session(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace strata
