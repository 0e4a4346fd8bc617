// Errors: what went wrong, where, and what to do about it.
//
// Three kinds (docs/design.md, "Failure"). The user's: UserError, one line and a remedy, no stack; its code is the
// process's exit code. The environment's (a peer, a device, a disk): EnvironmentError. The programmer's:
// LOCKSTEP_CHECK, which stays on in release builds since a wrong shape must never become a wrong gradient.
#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace lockstep {

// The process's exit codes, the same for every command.
enum class ExitCode : int {
  done = 0,
  check_failed = 1,
  usage = 2,
  does_not_fit = 3,
  bad_input_file = 4,
  environment = 5,
  checkpoint = 6,
  interrupted = 130,
};

// A mistake the user can mend. what() is one line: "<what is wrong, and where>; <remedy>".
class UserError : public std::runtime_error {
 public:
  UserError(ExitCode code, const std::string& problem, const std::string& remedy)
      : std::runtime_error(remedy.empty() ? problem : problem + "; " + remedy), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Something outside the program failed: the call that failed and what the system said of it.
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A broken promise between two pieces of this program.
class ProgramError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void throw_check_failed(const char* condition, const char* file, int line, fmt::string_view format,
                                     fmt::format_args arguments);

template <class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void check_failed(const char* condition, const char* file, int line,
                                                         fmt::format_string<Args...> format, Args&&... arguments) {
  throw_check_failed(condition, file, line, format, fmt::make_format_args(arguments...));
}

}  // namespace lockstep

// LOCKSTEP_CHECK(condition, format, arguments...): throws ProgramError naming the place when the condition is false.
#define LOCKSTEP_CHECK(condition, ...)                                       \
  do {                                                                       \
    if (!(condition)) [[unlikely]]                                           \
      ::lockstep::check_failed(#condition, __FILE__, __LINE__, __VA_ARGS__); \
  } while (false)
