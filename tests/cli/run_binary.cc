#include "tests/cli/run_binary.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace strata::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
    int read = -1;
    int write = -1;

    Pipe() {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
        read = ends[0];
        write = ends[1];
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    ~Pipe() {
        close(&read);
        close(&write);
    }

    static void close(int* fd) {
        if (*fd >= 0) ::close(*fd);
        *fd = -1;
    }
};

[[noreturn]] void become_strata(const std::vector<std::string>& arguments,
                                const RunOptions& options, int in, int out, int err) {
    ::dup2(in, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    if (options.file_bytes_max) {
        const rlimit limit{*options.file_bytes_max, *options.file_bytes_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (options.address_bytes_max) {
        const rlimit limit{*options.address_bytes_max, *options.address_bytes_max};
        ::setrlimit(RLIMIT_AS, &limit);
    }
    for (const auto& [name, value] : options.environment) {
        ::setenv(name.c_str(), value.c_str(), 1);
    }
    std::string program = STRATA_BINARY;
    std::vector<std::string> words = arguments;
    std::vector<char*> argv = {program.data()};
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
}

// Writes what the pipe takes; closes it once all is written or nobody reads.
void feed(int* fd, std::string* text) {
    const ssize_t n = ::write(*fd, text->data(), text->size());
    if (n > 0) text->erase(0, static_cast<std::size_t>(n));
    if (text->empty() || (n < 0 && errno != EAGAIN && errno != EINTR)) Pipe::close(fd);
}

void drain(int* fd, std::string* text) {
    std::array<char, 1 << 16> bytes{};
    const ssize_t n = ::read(*fd, bytes.data(), bytes.size());
    if (n > 0) {
        text->append(bytes.data(), static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
        Pipe::close(fd);
    }
}

// Whether the program has come so far that it gets its signal: files are written under their name
// and a few letters more.
bool has_begun(const RunOptions& options, const Ran& ran) {
    if (options.output_file.empty()) return !ran.out.empty();
    const std::filesystem::path file(options.output_file);
    for (const auto& entry : std::filesystem::directory_iterator(file.parent_path())) {
        if (entry.path().filename().string().starts_with(file.filename().string() + "."))
            return true;
    }
    return false;
}

// Moves bytes until the program has closed its outputs or the time is over.
void talk(pid_t child, Pipe* in, Pipe* out, Pipe* err, const RunOptions& options, Ran* ran) {
    int signal = options.signal_at_output;
    const auto end = Clock::now() + options.limit;
    std::string input = options.input;
    if (input.empty()) Pipe::close(&in->write);
    while (out->read >= 0 || err->read >= 0) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
        if (left <= 0) {
            ran->timed_out = true;
            return;
        }
        std::array<pollfd, 3> waits = {pollfd{in->write, POLLOUT, 0}, pollfd{out->read, POLLIN, 0},
                                       pollfd{err->read, POLLIN, 0}};
        constexpr int kLookMs = 5;  // for a file, which no descriptor tells of
        const bool looks = signal != 0 && !options.output_file.empty();
        ::poll(waits.data(), waits.size(), looks ? kLookMs : static_cast<int>(left));
        if (waits[0].revents != 0) feed(&in->write, &input);
        if (waits[1].revents != 0) drain(&out->read, &ran->out);
        if (waits[2].revents != 0) drain(&err->read, &ran->err);
        if (signal != 0 && has_begun(options, *ran)) ::kill(child, std::exchange(signal, 0));
    }
}

}  // namespace

Ran run_strata(const std::vector<std::string>& arguments, const RunOptions& options) {
    std::signal(SIGPIPE, SIG_IGN);
    Pipe in;
    Pipe out;
    Pipe err;
    int output = out.write;
    if (!options.output_path.empty()) {
        output = ::open(options.output_path.c_str(), O_WRONLY | O_CLOEXEC);
        if (output < 0) std::abort();
    }
    const pid_t child = ::fork();
    if (child < 0) std::abort();
    if (child == 0) {
        // What the test ignores, the program would otherwise start with.
        std::signal(SIGPIPE, SIG_DFL);
        if (options.reader_leaves) Pipe::close(&out.read);
        become_strata(arguments, options, in.read, output, err.write);
    }
    Pipe::close(&in.read);
    Pipe::close(&out.write);
    Pipe::close(&err.write);
    if (!options.output_path.empty()) ::close(output);
    if (options.reader_leaves) Pipe::close(&out.read);
    ::fcntl(in.write, F_SETFL, O_NONBLOCK);
    Ran ran;
    talk(child, &in, &out, &err, options, &ran);
    if (ran.timed_out) ::kill(child, SIGKILL);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) ran.status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) ran.signal = WTERMSIG(status);
    return ran;
}

}  // namespace strata::test
