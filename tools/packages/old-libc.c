/* Linked into released programs, so that they start on hosts whose C library is older than the one that they are linked against. */

/* Newer versions of this one differ in errno alone. */
double old_pow(double base, double exponent);
__asm__(".symver old_pow, pow@GLIBC_" OLDEST);

__attribute__((visibility("hidden"))) double pow(double base, double exponent)
{
    return old_pow(base, exponent);
}
