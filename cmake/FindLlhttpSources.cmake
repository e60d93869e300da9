# llhttp comes as C sources in Debian 12's node-llhttp; they are compiled in, without our warnings.
find_path(LLHTTP_INCLUDE llhttp.h PATHS /usr/share/include/llhttp)
find_path(LLHTTP_SOURCES llhttp.c PATHS /usr/share/llhttp)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LlhttpSources REQUIRED_VARS LLHTTP_SOURCES LLHTTP_INCLUDE
  REASON_FAILURE_MESSAGE "install the Debian package node-llhttp, or run scripts/setup.sh")
# Strict mode: nothing may follow a message that closes its connection, and paths are checked.
add_library(llhttp_sources STATIC ${LLHTTP_SOURCES}/llhttp.c ${LLHTTP_SOURCES}/api.c ${LLHTTP_SOURCES}/http.c)
target_include_directories(llhttp_sources SYSTEM PUBLIC ${LLHTTP_INCLUDE})
target_compile_definitions(llhttp_sources PUBLIC LLHTTP_STRICT_MODE=1)
target_compile_options(llhttp_sources PRIVATE -w -O2)
add_library(debian::llhttp ALIAS llhttp_sources)
