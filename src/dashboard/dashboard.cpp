#include "dashboard/dashboard.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "dashboard/page_files.h"
#include "dashboard/prometheus.h"
#include "dashboard/run_answers.h"
#include "dashboard/run_store.h"
#include "dashboard/trace_answers.h"

namespace lockstep {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kSummaryBudget{1500};

HttpAnswer json_answer(const json& value) {
  return {.type = "application/json; charset=utf-8",
          .body = value.dump(-1, ' ', false, json::error_handler_t::replace)};
}

HttpAnswer refused(int status, std::string_view why) { return {.status = status, .body = std::string(why) + "\n"}; }

const PageFile* page_file(std::string_view path) {
  const auto files = page_files();
  const auto found = std::ranges::find(files, path, &PageFile::path);
  return found == files.end() ? nullptr : &*found;
}

HttpAnswer page_answer(const PageFile& file, int status = 200) {
  return {.status = status, .type = std::string(file.type), .body = std::string(file.content)};
}

// A number of the query; `otherwise` where it is missing or something else.
template <class T>
T number_in_query(const HttpRequest& request, const char* name, T otherwise) {
  const auto found = request.query.find(name);
  if (found == request.query.end()) return otherwise;
  T value{};
  const char* end = found->second.data() + found->second.size();
  const auto [stopped, error] = std::from_chars(found->second.data(), end, value);
  return error == std::errc() && stopped == end && value == value ? value : otherwise;
}

void protect(HttpAnswer& answer) {
  // Nothing from elsewhere, nothing in frames; styles that the charts set are set by script, which is no inline style.
  answer.headers.emplace_back("Content-Security-Policy",
                              "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                              "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'");
  answer.headers.emplace_back("X-Content-Type-Options", "nosniff");
  answer.headers.emplace_back("X-Frame-Options", "DENY");
  answer.headers.emplace_back("Referrer-Policy", "no-referrer");
  answer.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  answer.headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  answer.headers.emplace_back("Cache-Control", "no-store");
}

}  // namespace

Dashboard::Dashboard(const DashboardOptions& options)
    : access_(options.token, options.hosts), store_(std::make_unique<RunStore>(options.folder)) {
  std::error_code error;
  const fs::path whole = fs::canonical(options.folder, error);
  folder_name_ = error ? options.folder.string() : whole.filename().string();
}

Dashboard::~Dashboard() = default;

std::size_t Dashboard::runs() { return store_->summaries(std::chrono::milliseconds(0)).size(); }

HttpAnswer Dashboard::answer(const HttpRequest& request) {
  HttpAnswer answer;
  try {
    answer = access_.allows_host(request.host)
                 ? routed(request)
                 : refused(403, "the page is not served under this name: start the dashboard with --host NAME");
  } catch (const std::exception&) {
    answer = refused(500, "the answer could not be made");
  }
  protect(answer);
  return answer;
}

HttpAnswer Dashboard::login(const HttpRequest& request) const {
  const auto token = request.form.find("token");
  const std::string cookie = token == request.form.end() ? "" : access_.login(token->second);
  if (cookie.empty()) {
    const PageFile* page = page_file("/login");
    return page ? page_answer(*page, 403) : refused(403, "a wrong token");
  }
  return {.status = 303, .body = "", .headers = {{"Set-Cookie", cookie}, {"Location", "/"}}};
}

HttpAnswer Dashboard::routed(const HttpRequest& request) {
  if (request.method == "POST")
    return request.path == "/login" ? login(request) : refused(405, "this server only reads");
  const bool open = request.path == "/login" || request.path == "/page.css";
  if (!open && !access_.allows(request)) {
    if (request.path == "/") return {.status = 303, .body = "", .headers = {{"Location", "/login"}}};
    HttpAnswer answer = refused(401, "a token is needed: send it as Authorization: Bearer TOKEN");
    answer.headers.emplace_back("WWW-Authenticate", "Bearer");
    return answer;
  }
  if (request.path == "/metrics")
    return {.type = std::string(kExpositionType), .body = exposition(store_->summaries(kSummaryBudget))};
  if (request.path.starts_with("/api/")) return api(request.path.substr(5), request);
  const PageFile* page = page_file(request.path);
  return page ? page_answer(*page) : refused(404, "there is nothing here");
}

HttpAnswer Dashboard::api(const std::string& what, const HttpRequest& request) {
  if (what == "runs") {
    json runs = json::array();
    for (const RunSummary& summary : store_->summaries(kSummaryBudget)) runs.push_back(summary_json(summary));
    return json_answer({{"folder", folder_name_}, {"runs", std::move(runs)}});
  }
  const auto named = request.query.find("run");
  const std::string name = named == request.query.end() ? "" : named->second;
  json value;
  bool there = false;
  if (what == "timeline" || what == "schedule") {
    const TimelineWindow window{.step = number_in_query<std::int64_t>(request, "step", -1),
                                .from = number_in_query(request, "from", 0.0),
                                .to = number_in_query(request, "to", -1.0),
                                .first_rank = number_in_query(request, "first", 0),
                                .ranks = number_in_query(request, "ranks", 32)};
    there = store_->with_trace(name, [&](const RunRecords& run, const ShownTrace& shown) {
      if (!shown.problem.empty())
        value = {{"problem", shown.problem}};
      else
        value = what == "timeline" ? timeline_json(shown.trace, window) : schedule_json(shown.trace, run.plan);
    });
  } else {
    const StepRange range{.from = number_in_query<std::int64_t>(request, "from", 0),
                          .to = number_in_query(request, "to", StepRange().to)};
    using Look = std::function<json(const RunRecords&)>;
    const Look look = what == "curves"     ? Look([&](const RunRecords& run) { return curves_json(run, range); })
                      : what == "times"    ? Look(times_json)
                      : what == "memory"   ? Look(memory_json)
                      : what == "events"   ? Look(events_json)
                      : what == "findings" ? Look(findings_json)
                                           : Look();
    if (!look) return refused(404, "there is nothing here");
    there = store_->with(name, [&](const RunRecords& run) { value = look(run); });
  }
  return there ? json_answer(value) : refused(404, "there is no such run, or its files cannot be read");
}

}  // namespace lockstep
