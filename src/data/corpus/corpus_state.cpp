#include "data/corpus/corpus_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/system_failure.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

constexpr const char* kStateFormat = "lockstep tokenize";
constexpr int kStateVersion = 1;
constexpr std::size_t kMostStateBytes = 4096;

}  // namespace

std::filesystem::path corpus_state_of(const std::filesystem::path& out) {
  std::filesystem::path path = out;
  return path += ".progress";
}

void save_corpus_state(const std::filesystem::path& out, const CorpusState& state) {
  nlohmann::ordered_json json{{"format", kStateFormat},
                              {"version", kStateVersion},
                              {"job", fmt::format("{:016x}", state.job)},
                              {"tokens", state.written.tokens},
                              {"documents", state.written.documents},
                              {"input", state.place.input},
                              {"bytes", state.place.bytes},
                              {"lines", state.place.lines},
                              {"read", fmt::format("{:016x}", state.place.read)}};
  if (state.written.targets > 0) json["targets"] = state.written.targets;
  const std::string text = json.dump() + "\n";
  const std::filesystem::path path = corpus_state_of(out);
  std::filesystem::path beside = path;
  beside += ".new";
  const auto check_call = [&](bool fine, const char* call) {
    if (!fine) throw EnvironmentError(system_failure(beside, call, errno));
  };
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  check_call(fd >= 0, "open");
  const ssize_t written = ::write(fd, text.data(), text.size());
  const int error = errno, synced = ::fsync(fd);
  ::close(fd);
  errno = error;
  check_call(written == std::ssize(text) && synced == 0, "write");
  check_call(::rename(beside.c_str(), path.c_str()) == 0, "rename");
}

std::optional<CorpusState> read_corpus_state(const std::filesystem::path& out) {
  const std::filesystem::path path = corpus_state_of(out);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const std::string text = read_text_file(path, kMostStateBytes, ExitCode::bad_input_file);
  const auto refuse_state = [&](const std::string& problem) {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", path.string(), problem), "remove it to begin anew");
  };
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kStateFormat)
    refuse_state("is not the progress of `lockstep tokenize`");
  if (json.value("version", nlohmann::json()) != kStateVersion) refuse_state("is of another version");
  const auto number = [&](const char* key) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number_integer() || *found < 0 || *found > std::int64_t{1} << 60)
      refuse_state(fmt::format("is damaged: {} is not a number", key));
    return found->get<std::int64_t>();
  };
  const auto digits = [&](const char* key) {
    const auto found = json.find(key);
    const std::string word = found != json.end() && found->is_string() ? found->get<std::string>() : "";
    if (word.size() != 16 || word.find_first_not_of("0123456789abcdef") != word.npos)
      refuse_state(fmt::format("is damaged: {} is not 16 digits", key));
    return static_cast<std::uint64_t>(std::stoull(word, nullptr, 16));
  };
  return CorpusState{
      .job = digits("job"),
      .written = {.tokens = number("tokens"),
                  .documents = number("documents"),
                  .targets = json.contains("targets") ? number("targets") : 0},
      .place = {.input = number("input"), .bytes = number("bytes"), .lines = number("lines"), .read = digits("read")}};
}

}  // namespace lockstep
