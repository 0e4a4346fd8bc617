// Stands in for the server in builds without cpp-httplib.
#include "base/error.h"
#include "dashboard/http_server.h"
#include "dashboard/page_files.h"

namespace lockstep {

struct HttpServer::State {};

HttpServer::HttpServer(const HttpServerOptions&, Handler) {
  throw UserError(ExitCode::environment, "this build of lockstep has no dashboard",
                  fmt::format("install {} and build again", missing_packages()));
}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return 0; }

}  // namespace lockstep
